"""Tensors that can't be rehearsed on a device: nested, quantised and fake ones are refused by name."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.private_api import no_torch_function
from devlint.runtime._rehearse.state import Rehearsal, RehearsalUnsupported

_NESTED = ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged")


def refuse(session: Rehearsal, what: str) -> Exception:
    """Note that ``what`` can't be rehearsed, and return the error to raise."""
    text = f"{what} can't be rehearsed"
    session.report.note(text)
    return RehearsalUnsupported(text)


def refuse_kind(session: Rehearsal, tensor: torch.Tensor) -> None:
    """Raise ``RehearsalUnsupported`` for a tensor that is to move to a device and can't be rehearsed there."""
    with no_torch_function():
        if tensor.is_nested:
            raise refuse(session, f"a nested tensor on {session.kind}")
        if tensor.is_quantized:
            raise refuse(session, f"a quantised tensor on {session.kind}")


def install(session: Rehearsal, patches: Patches) -> None:
    """Refuse fake tensors, and nested ones made on the device."""
    fake: Any = importlib.import_module("torch._subclasses.fake_tensor")

    def enter(mode: Any) -> Any:  # C++ aborts the process when it meets a fake tensor of a device that it lacks
        raise refuse(session, "fake tensors (torch.export, FakeTensorMode)")

    patches.set(fake.FakeTensorMode, "__enter__", enter)
    for name in _NESTED:
        if hasattr(torch.nested, name):
            patches.set(torch.nested, name, _guarded(session, getattr(torch.nested, name)))


def _guarded(session: Rehearsal, make: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        given = args[0] if args and isinstance(args[0], (list, tuple)) else args
        placed = any(isinstance(item, torch.Tensor) and session.rehearsed(session.device_of(item)) for item in given)
        if (placed and device is None) or (device is not None and session.resolve(device) is not None):
            raise refuse(session, f"a nested tensor on {session.kind}")
        return make(*args, **kwargs)

    return made
