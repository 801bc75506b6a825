"""``rehearse``: enter and leave a rehearsal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from devlint.runtime._rehearse import (
    amp,
    composites,
    cuda_api,
    device_type,
    distributed,
    eager,
    exchange,
    loading,
    op_table,
    parallel,
    private_api,
    processes,
    rng,
    storages,
    tensor_api,
    unsupported,
)
from devlint.runtime._rehearse.dispatch import DispatchLayer
from devlint.runtime._rehearse.functions import FunctionLayer, forget_bodies
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.report import Report
from devlint.runtime._rehearse.state import KINDS, Rehearsal

_running = threading.Lock()


@contextlib.contextmanager
def rehearse(device: str = "cuda", count: int = 1, *, poison: bool = False) -> Iterator[Report]:
    """Run the block on a rehearsed accelerator: real values on the CPU, the device's own rules and errors.

    ``device`` is ``"cuda"``, ``"xpu"`` or ``"mps"``; ``count`` is how many of them there are. With ``poison``,
    a non-blocking device-to-host copy holds NaN (0 for integers) until the next synchronize, so that a read that
    comes too early shows. Yields the ``Report``, which is complete when the block has ended.

    Raises ``ValueError`` for another device or count, ``RuntimeError`` inside another rehearsal, and
    ``RehearsalUnavailable`` where the installed torch lacks what this stands on.
    """
    kind = torch.device(device).type
    if kind not in KINDS:
        raise ValueError(f"can't rehearse {device!r}: one of {', '.join(KINDS)}")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"count must be a whole number of devices, at least 1, not {count!r}")
    note = private_api.verify()
    if not _running.acquire(blocking=False):
        raise RuntimeError("a rehearsal is running already: they don't nest")
    try:
        session = Rehearsal(kind, count)
        session.poison = poison
        if note is not None:
            session.report.note(note)
        if not op_table.table():
            session.report.note("this torch ships no operator list: every operator is checked as exact")
        patches = Patches()
        try:
            _install(session, patches)
            yield session.report
        except Exception as error:
            session.record(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            raise
        finally:
            patches.undo()
            _finish(session)
    finally:
        _running.release()


def _install(session: Rehearsal, patches: Patches) -> None:
    forget_bodies()
    patches.call_after(forget_bodies)
    session.host_only = composites.host_only_reads()
    rng.install(session, patches)
    for name, value in tensor_api.overrides(session).items():
        patches.set(torch.Tensor, name, value)
    device_type.install(session, patches)
    storages.install(session, patches)
    exchange.install(session, patches)
    eager.install(session, patches)
    cuda_api.install(session, patches)
    parallel.install(session, patches)
    unsupported.install(session, patches)
    amp.install(session, patches)
    loading.install(session, patches, lambda: _layers(session))
    distributed.install(session, patches)
    processes.install(session, patches)
    patches.enter(_layers(session))
    session.initialised = False


@contextlib.contextmanager
def _layers(session: Rehearsal) -> Iterator[None]:
    with DispatchLayer(session), FunctionLayer(session):
        yield


def _finish(session: Rehearsal) -> None:
    session.settle()
    session.tags.sweep()
    report = session.report
    report.peak_bytes = max(report.peak_bytes, session.tags.peak)
    report.operators = session.operators
    processes.merge(session)
    session.tags.clear()


def running_report(value: Any) -> bool:
    """Whether ``value`` is a report (for the pytest plugin's assertions)."""
    return isinstance(value, Report)
