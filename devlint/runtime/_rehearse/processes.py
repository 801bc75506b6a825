"""Spawned processes take part in the rehearsal: they enter it before their main module, and report back.

Forked processes need nothing: they have the parent's rehearsal, whose devices refuse them as CUDA does.
"""

from __future__ import annotations

import contextlib
import glob
import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.report import Report
from devlint.runtime._rehearse.rng import running_session
from devlint.runtime._rehearse.state import Rehearsal

_EXIT_PRIORITY = 100  # the exit function runs the highest first


class _Entry:
    """Goes to a spawned process with its settings; being unpickled there, it enters the rehearsal."""

    def __init__(self, *settings: Any) -> None:
        self.settings = settings

    def __reduce__(self) -> Any:
        return (_enter, self.settings)


def _enter(kind: str, count: int, poison: bool, folder: str) -> None:
    """Rehearse the rest of this process; at its end, write its report into ``folder``."""
    from devlint.runtime._rehearse.session import rehearse

    stack = contextlib.ExitStack()
    report = stack.enter_context(rehearse(kind, count, poison=poison))
    running_session().folder = folder

    def leave() -> None:
        stack.close()
        if os.path.isdir(folder):
            with open(os.path.join(folder, f"{os.getpid()}.report"), "wb") as file:
                pickle.dump(report, file)

    multiprocessing.util.Finalize(None, leave, exitpriority=_EXIT_PRIORITY)


def install(session: Rehearsal, patches: Patches) -> None:
    """Spawned processes enter the rehearsal; tensors sent to one keep their device."""
    prepare: Any = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        if not session.folder:
            session.folder = tempfile.mkdtemp(prefix="devlint-rehearse-")
            session.owns_folder = True
        entry = _Entry(session.kind, len(session.devices), session.poison, session.folder)
        return {"devlint_rehearse": entry, **prepare(name)}

    patches.set(multiprocessing.spawn, "get_preparation_data", get_preparation_data)
    import torch.multiprocessing

    reducers: dict[Any, Any] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for type_ in (torch.Tensor, torch.nn.Parameter):
        patches.call_after(reducers.__setitem__, type_, reducers[type_])
        reducers[type_] = _sending(session, reducers[type_])
    patches.call_after(reducers.__setitem__, torch.UntypedStorage, reducers[torch.UntypedStorage])
    reducers[torch.UntypedStorage] = _on_host(session, reducers[torch.UntypedStorage])
    _shared_storages(session, patches)


def _on_host(session: Rehearsal, reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A storage is sent as the CPU's that it is: its tensor has said where it lives."""

    def reduce_on_host(storage: Any) -> Any:
        session.on_host += 1
        try:
            return reduce(storage)
        finally:
            session.on_host -= 1

    return reduce_on_host


def _shared_storages(session: Rehearsal, patches: Patches) -> None:
    """A loader's worker collates device tensors into a new shared storage on their device."""
    real = torch.UntypedStorage._new_shared.__func__  # type: ignore[attr-defined]

    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        target = session.resolve(device)
        storage = real(cls, size, device="cpu" if target is not None else device)
        if target is not None:
            session.place(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage), target, "created")
        return storage

    patches.set(torch.UntypedStorage, "_new_shared", classmethod(new_shared))


def _sending(session: Rehearsal, reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reduce_with_device(tensor: torch.Tensor) -> Any:
        device = session.device_of(tensor)
        if not session.rehearsed(device):
            return reduce(tensor)
        session.on_host += 1
        try:
            tensor.untyped_storage().share_memory_()  # a copy on the host, which CUDA's handles don't need
            return (_received, (str(device), *reduce(tensor)))
        finally:
            session.on_host -= 1

    return reduce_with_device


def _received(device: str, rebuild: Any, args: Any) -> Any:
    tensor = rebuild(*args)
    session = running_session()
    if session is not None:
        session.place(tensor, session.resolve(device), "received")
    return tensor


def merge(session: Rehearsal) -> None:
    """Add what the spawned processes reported to this one's report."""
    if not session.owns_folder:
        return
    found = 0
    for path in sorted(glob.glob(os.path.join(glob.escape(session.folder), "*.report"))):
        with open(path, "rb") as file:
            _add(session.report, pickle.load(file))
        found += 1
    shutil.rmtree(session.folder, ignore_errors=True)
    session.report.note(f"{found} spawned process{'es' * (found != 1)} rehearsed too: counts are of all of them")


def _add(report: Report, other: Report) -> None:
    # torch carries a child's error to its parent as text: what was noted from that text has a better record here
    for mismatch in other.mismatches:
        report.mismatches[:] = [mine for mine in report.mismatches if mismatch.message not in mine.message]
    report.mismatches += other.mismatches
    for sync in other.syncs:
        same_sync = next(
            (s for s in report.syncs if (s.kind, s.file, s.line) == (sync.kind, sync.file, sync.line)), None
        )
        if same_sync is None:
            report.syncs.append(sync)
        else:
            same_sync.count += sync.count
    for move in other.transfers:
        key = (move.direction, move.file, move.line, move.pinned, move.non_blocking)
        same_move = next(
            (m for m in report.transfers if (m.direction, m.file, m.line, m.pinned, m.non_blocking) == key), None
        )
        if same_move is None:
            report.transfers.append(move)
        else:
            same_move.count += move.count
            same_move.bytes += move.bytes
    for note in other.notes:
        report.note(note)
    report.peak_bytes = max(report.peak_bytes, other.peak_bytes)
    report.steps += other.steps
    report.operators += other.operators
