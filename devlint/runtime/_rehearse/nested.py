"""Nested tensors: strided ones live on rehearsed devices; jagged ones, which are a wrapper class, are refused."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse.dispatch import call_device
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import Rehearsal, RehearsalUnsupported

_MAKERS = ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow")


def install(session: Rehearsal, patches: Patches) -> None:
    """Make nested tensors on the host and move them; refuse jagged ones on a device."""
    for name in _MAKERS:
        if hasattr(torch.nested, name):
            patches.set(torch.nested, name, _made_on_host(session, getattr(torch.nested, name)))


def refuse_jagged(session: Rehearsal) -> RehearsalUnsupported:
    """Note, and return for raising, that a jagged nested tensor can't be rehearsed."""
    text = "jagged nested tensors can't be rehearsed on a device: pad them, or use layout=torch.strided"
    session.report.note(text)
    return RehearsalUnsupported(text)


def _made_on_host(session: Rehearsal, function: Any) -> Any:
    jagged_only = function.__name__ in ("nested_tensor_from_jagged", "narrow")

    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        target = session.resolve(device) if device is not None else call_device(session, args, kwargs)
        if target is None:
            return function(*args, **kwargs)
        if jagged_only or kwargs.get("layout") is torch.jagged:
            raise refuse_jagged(session)
        parts = [part.cpu() if isinstance(part, torch.Tensor) else part for part in args[0]]
        return function(parts, *args[1:], **{**kwargs, "device": "cpu"}).to(target)

    return make
