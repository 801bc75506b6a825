"""How many CPU cores this process may use for itself."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """Cores by affinity and container quota, shared among the processes of this machine (``LOCAL_WORLD_SIZE``).

    At least 1. A ``LOCAL_WORLD_SIZE`` that is no positive number counts as 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = container_quota(Path("/sys/fs/cgroup/cpu.max"))
    if quota is not None:
        cores = min(cores, max(1, math.floor(quota)))
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    processes = int(text) if text.isascii() and text.isdigit() else 1
    return max(1, cores // max(1, processes))


def container_quota(file: Path) -> float | None:
    """Cores that a cgroup v2 quota (``max 100000`` or ``200000 100000``) allows, or None for no limit."""
    try:
        quota, period = file.read_text().split()[:2]
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
