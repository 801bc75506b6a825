"""Storages that say where they live, and move: ``map_location`` functions and old scripts use them."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse.moves import move
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.private_api import no_torch_function
from devlint.runtime._rehearse.state import CPU, Rehearsal

_BYTE = torch.uint8


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for ``UntypedStorage``'s device and moves."""
    storage_type: Any = torch.UntypedStorage
    real: Any = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]

    def device(storage: Any) -> Any:
        tag = session.entries.get(storage._cdata)
        if tag is None or session.on_host or not session.rehearsed(tag.device):
            return real(storage)
        return tag.device

    def flat(storage: Any) -> torch.Tensor:
        with no_torch_function():
            return torch.empty(0, dtype=_BYTE, device=CPU).set_(storage)

    def to(storage: Any, *, device: Any, non_blocking: bool = False) -> Any:
        target = session.resolve(device) or torch.device(device)
        return move(
            session, flat(storage), CPU if target.type == "cpu" else target, None, non_blocking
        ).untyped_storage()

    def to_kind(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        target = device if device is not None else session.kind
        return to(storage, device=target, non_blocking=non_blocking)

    patches.set(storage_type, "device", property(device))
    patches.set(storage_type, "is_cuda", property(lambda storage: device(storage).type == "cuda"))
    patches.set(storage_type, "to", to)
    patches.set(storage_type, "clone", lambda storage: flat(storage).clone().untyped_storage())
    patches.set(storage_type, "cpu", lambda storage: to(storage, device=CPU))
    patches.set(storage_type, session.kind, to_kind)
