"""Functions made of several operators that check devices themselves, in C++ that sees the CPU only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devlint.runtime._rehearse import messages
from devlint.runtime._rehearse.messages import Argument
from devlint.runtime._rehearse.state import INTERNAL, Rehearsal

Tensor = torch.Tensor
Check = Callable[[Rehearsal, tuple[Any, ...], dict[str, Any]], None]


def _arguments(session: Rehearsal, name: str, tensors: Any) -> list[Argument]:
    return [
        Argument(name, tensor, session.device_of(tensor))
        for tensor in (tensors if isinstance(tensors, (list, tuple)) else (tensors,))
        if isinstance(tensor, Tensor) and session.device_of(tensor) is not INTERNAL
    ]


def _refuse(session: Rehearsal, text: str, operator: str, arguments: list[Argument]) -> None:
    infos, rule, forward = messages.describe(session, arguments)
    raise session.fail(text, operator, rule, infos, forward)


def _meshgrid(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tensors = args[0] if args and isinstance(args[0], (list, tuple)) else args
    found = _arguments(session, "tensors", list(tensors))
    if any(argument.device != found[0].device for argument in found):
        _refuse(session, "meshgrid expects all tensors to have the same device", "meshgrid", found)


def _tensor_split(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    where = kwargs.get("tensor_indices_or_sections", args[1] if len(args) > 1 else None)
    found = _arguments(session, "tensor_indices_or_sections", where)
    if found and session.rehearsed(found[0].device):
        text = f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {found[0].device}"
        _refuse(session, text, "tensor_split", found)


def _recurrent(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    packed = len(args) > 2 and isinstance(args[3], (list, tuple)) and isinstance(args[1], Tensor)
    hidden, weights = (args[2], args[3]) if packed else (args[1], args[2])
    given = _arguments(session, "input", args[0])
    for name, tensors in (("hidden", hidden), ("parameter", weights)):
        for odd in _arguments(session, name, tensors):
            if given and odd.device != given[0].device:
                text = (
                    f"Input and {name} tensors are not at the same device, found input tensor at {given[0].device} and "
                    f"{name} tensor at {odd.device}"
                )
                _refuse(session, text, "rnn", [given[0], odd])


def _attention(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = [*zip(("query", "key", "value"), args, strict=False), *kwargs.items()]
    found = [a for name, value in given if name in ("query", "key", "value") for a in _arguments(session, name, value)]
    if len({argument.device for argument in found}) > 1:
        where = " ".join(f"{a.name}.device: {a.device}" for a in found[:2])
        text = (
            f"Expected query, key, and value to have the same device type, but got {where} and "
            f"{found[-1].name}.device: {found[-1].device} instead."
        )
        _refuse(session, text, "scaled_dot_product_attention", found)


def _window(name: str) -> Check:
    """``stft`` and ``istft``, whose window lies where the signal does."""

    def check(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        own = _arguments(session, "self", args[:1])
        for window in _arguments(session, "window", kwargs.get("window", args[4] if len(args) > 4 else None)):
            if own and window.device != own[0].device:
                text = (
                    f"{name} input and window must be on the same device but got self on {own[0].device} and window "
                    f"on {window.device}"
                )
                _refuse(session, text, name, [own[0], window])

    return check


def _quantile(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    named = [*zip(("input", "q"), args, strict=False), *kwargs.items()]
    given = [a for name, value in named if name in ("input", "q") for a in _arguments(session, name, value)]
    if any(argument.device != given[0].device for argument in given[1:]):
        text = "quantile() q tensor must be on the same device as the input tensor"
        _refuse(session, text, "quantile", given)


def _matrix_rank(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    own = _arguments(session, "input", args[:1])
    for name, value in kwargs.items():
        for odd in _arguments(session, name, value) if name in ("atol", "rtol", "tol") else ():
            if own and odd.device != own[0].device:
                text = (
                    f"torch.linalg.matrix_rank: Expected {name} and input tensors to be on the same device, but got "
                    f"{name} on {odd.device} and input on {own[0].device}"
                )
                _refuse(session, text, "matrix_rank", [own[0], odd])


def checks() -> dict[Any, Check]:
    """Function -> its check, which raises ``RehearsedDeviceError`` in the function's own words."""
    functions: Any = torch._C._VariableFunctions
    found: dict[Any, Check] = {
        functions.meshgrid: _meshgrid,
        torch.meshgrid: _meshgrid,
        functions.tensor_split: _tensor_split,
        torch.tensor_split: _tensor_split,
        Tensor.tensor_split: _tensor_split,
        torch.linalg.matrix_rank: _matrix_rank,
        functions.stft: _window("stft"),
        functions.istft: _window("istft"),
        torch.istft: _window("istft"),
        torch.nn.functional.scaled_dot_product_attention: _attention,
    }
    for owner in (torch, Tensor):
        found.update(dict.fromkeys((owner.quantile, owner.nanquantile), _quantile))
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        found[getattr(functions, name)] = _recurrent
    return found


def host_only_reads() -> dict[Any, Callable[[tuple[Any, ...], dict[str, Any]], bool]]:
    """Functions whose C++ reads values only where the tensor is on the CPU -> whether this call is such a one."""
    one_hot: Any = torch.nn.functional.one_hot

    def counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(kwargs.get("num_classes", args[1] if len(args) > 1 else -1) > 0)

    def always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return True

    functions = (torch.quantile, torch.nanquantile, Tensor.quantile, Tensor.nanquantile)
    return {one_hot: counted, **dict.fromkeys(functions, always)}
