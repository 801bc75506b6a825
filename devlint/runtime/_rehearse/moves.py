"""Copies between the host and the rehearsed devices, with their gradients."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse.private_api import Base, no_torch_function
from devlint.runtime._rehearse.state import CPU, Rehearsal
from devlint.runtime._rehearse.tags import parts


def _copied(tensor: torch.Tensor, dtype: torch.dtype | None, memory_format: Any) -> torch.Tensor:
    with no_torch_function():
        copy: torch.Tensor = Base.to(
            tensor, dtype=dtype or tensor.dtype, copy=True, memory_format=memory_format or torch.preserve_format
        )
    return copy


def _copied_sparse(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    with no_torch_function():
        copy: torch.Tensor = Base.to(tensor, dtype=dtype or tensor.dtype, copy=True)
    return copy


class _Move(torch.autograd.Function):
    """A copy whose gradient is copied back to where the input lives."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        session: Rehearsal,
        source: Any,
        target: Any,
        dtype: torch.dtype | None,
        memory_format: Any,
    ) -> torch.Tensor:
        ctx.back = (session, source, tensor.dtype)
        copy = _copied(tensor.detach(), dtype, memory_format)
        session.place(copy, target, "moved")
        return copy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        session, source, dtype = ctx.back
        copy = _copied(gradients[0], dtype, None)
        session.place(copy, source)
        return copy, None, None, None, None, None


_apply: Any = _Move.apply


def move(
    session: Rehearsal,
    tensor: torch.Tensor,
    target: Any,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> torch.Tensor:
    """``tensor.to(target)``: the tensor itself where nothing changes, else a copy that is tagged and counted.

    Raises ``RuntimeError`` for ``float64`` towards MPS, ``NotImplementedError`` for a copy out of ``meta``.
    """
    source = session.shown_device(tensor)
    if target == source or (target.type != session.kind and source.type != session.kind):
        with no_torch_function():
            kept = {"memory_format": memory_format} if memory_format is not None else {}
            where = {} if session.rehearsed(target) else {"device": target}
            same: torch.Tensor = Base.to(tensor, dtype=dtype or tensor.dtype, copy=copy, **where, **kept)
        return same
    if target.type not in (session.kind, "cpu"):
        with no_torch_function():
            other: torch.Tensor = Base.to(tensor, device=target, dtype=dtype or tensor.dtype)
        return other
    refuse_dtype(session, target, dtype or tensor.dtype)
    if tensor.layout is torch.jagged:
        from devlint.runtime._rehearse.nested import refuse_jagged

        raise refuse_jagged(session)
    session.transfer(source, target, tensor, non_blocking)
    with no_torch_function():
        sparse = bool(parts(tensor))
    if sparse:
        moved = _copied_sparse(tensor, dtype)
        session.place(moved, target, "moved")
        return moved
    copied: torch.Tensor = _apply(tensor, session, source, target, dtype, memory_format)
    if non_blocking and target is CPU and session.poison:
        _poison(session, copied)
    return copied


def without_ordinals(session: Rehearsal, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of ``.to`` with the device in words, which C++ can't tell from a bare ordinal here."""
    if args and type(args[0]) is int:
        args = (torch.device(session.kind, args[0]), *args[1:])
    elif type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": torch.device(session.kind, kwargs["device"])}
    return args, kwargs


def refuse_dtype(session: Rehearsal, target: Any, dtype: torch.dtype) -> None:
    """MPS holds no float64."""
    if target.type == "mps" and dtype in (torch.float64, torch.complex128):
        raise session.fail(
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
            "Please use float32 instead.",
            "to",
            "",
            error=TypeError,
        )


def _poison(session: Rehearsal, tensor: torch.Tensor) -> None:
    """Until a sync, an unsynchronised device-to-host copy holds anything: fill it so that a read shows."""
    with no_torch_function(), torch.no_grad():
        held = tensor.detach().clone()
        tensor.detach().fill_(float("nan") if tensor.is_floating_point() else 0)
    session.place(held, CPU)
    session.pending.append((tensor.detach(), held))
