"""Rehearse CUDA (XPU, MPS) on a CPU: run a program with real values under the device's rules.

``rehearse`` is the context manager, ``Report`` its result; ``python -m devlint.runtime._rehearse`` the command.
"""

from __future__ import annotations

from devlint.runtime._rehearse.private_api import RehearsalUnavailable
from devlint.runtime._rehearse.report import Mismatch, Report, Sync, TensorInfo, Transfer
from devlint.runtime._rehearse.session import rehearse
from devlint.runtime._rehearse.state import RehearsalUnsupported, RehearsedDeviceError

__all__ = [
    "Mismatch",
    "RehearsalUnavailable",
    "RehearsalUnsupported",
    "RehearsedDeviceError",
    "Report",
    "Sync",
    "TensorInfo",
    "Transfer",
    "rehearse",
]
