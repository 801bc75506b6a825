"""Loaders, checkpoints and other places where storages cross a process, a file or a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.private_api import storage_id
from devlint.runtime._rehearse.state import CPU, Rehearsal

_PRIORITY = 5  # before torch's own cpu (10) and cuda (20) entries


def install(session: Rehearsal, patches: Patches, layers: Callable[[], Any]) -> None:
    """Stand in for pinning, storage locations and new threads. ``layers`` makes the modes for a thread."""
    _pinning(session, patches)
    _locations(session, patches)
    _threads(patches, layers)


def _pinning(session: Rehearsal, patches: Patches) -> None:
    import torch.utils.data._utils.pin_memory as pinning

    real: Any = pinning.pin_memory

    def pin_memory(data: Any, device: Any = None) -> Any:
        if isinstance(data, torch.Tensor):
            return data.pin_memory()
        return real(data, device)

    patches.set(pinning, "pin_memory", pin_memory)


def _locations(session: Rehearsal, patches: Patches) -> None:
    """``torch.save`` writes the rehearsed location; ``torch.load`` and ``map_location`` honour it."""
    registry = torch.serialization._package_registry

    def location(storage: Any) -> str | None:
        tag = session.entries.get(getattr(storage, "_untyped_storage", storage)._cdata)
        return str(tag.device) if tag is not None and session.rehearsed(tag.device) else None

    def restore(storage: Any, where: str) -> Any:
        if not where.startswith(session.kind):
            return None
        device = torch.device(where)
        if device.index is not None and device.index >= len(session.devices):
            raise session.fail(
                f"Attempting to deserialize object on CUDA device {device.index} but torch.cuda.device_count() is "
                f"{len(session.devices)}. Please use torch.load with map_location to map your storages to an existing "
                "device.",
                "load",
                "TDL604",
            )
        target = session.resolve(device)
        with_tensor = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
        session.place(with_tensor, target, "loaded")
        return storage

    entry = (_PRIORITY, location, restore)
    registry.insert(0, entry)
    patches.call_after(registry.remove, entry)


def _threads(patches: Patches, layers: Callable[[], Any]) -> None:
    """Modes are per thread: start each new thread inside them."""
    run = threading.Thread.run

    def rehearsed(thread: threading.Thread) -> None:
        with layers():
            run(thread)

    patches.set(threading.Thread, "run", rehearsed)


def tagged(session: Rehearsal, storage: Any) -> Any:
    """The device of a storage object."""
    tag = session.entries.get(storage._cdata)
    return tag.device if tag is not None else CPU


__all__ = ["install", "storage_id", "tagged"]
