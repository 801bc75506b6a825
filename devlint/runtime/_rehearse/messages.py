"""CUDA's own error texts, and the tensors behind them by the best name that the program has for each."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from devlint.runtime._rehearse import frames
from devlint.runtime._rehearse.private_api import current_autograd_node, no_torch_function, storage_id, version
from devlint.runtime._rehearse.report import TensorInfo
from devlint.runtime._rehearse.state import CPU, Rehearsal

PLAIN = "plain attribute, not registered as a buffer, so .to() does not move it"
UNREGISTERED = "in a plain container, not registered, so .to() does not move it"
_LOSSES = ("nll_loss", "cross_entropy", "binary_cross_entropy", "multi_margin")
_MOST_NAMES = 2000


class Argument(NamedTuple):
    """One tensor argument of an operator."""

    name: str
    tensor: torch.Tensor
    device: Any


def key_of(tensor: torch.Tensor) -> int:
    """The storage's id; the object's own where there is no storage."""
    try:
        return int(storage_id(tensor))
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def exact_text(argument: str, odd: Any, common: Any, wrapper: str) -> str:
    """The text of the check in CUDA's generated wrapper (torch 2.8 put the argument first)."""
    if version() >= (2, 8):
        return (
            f"Expected all tensors to be on the same device, but got {argument} is on {odd}, different from "
            f"other tensors on {common} (when checking argument in method {wrapper})"
        )
    return (
        f"Expected all tensors to be on the same device, but found at least two devices, {common} and {odd}! "
        f"(when checking argument for argument {argument} in method {wrapper})"
    )


def iterator_text(devices: list[Any]) -> str:
    """TensorIterator's text."""
    return (
        f"Expected all tensors to be on the same device, but found at least two devices, {devices[0]} and {devices[1]}!"
    )


def index_text(device: Any) -> str:
    """Advanced indexing's text."""
    return f"indices should be either on cpu or on the same device as the indexed tensor ({device})"


def describe(session: Rehearsal, arguments: list[Argument]) -> tuple[tuple[TensorInfo, ...], str, str]:
    """Name the tensors; return them with the rule that fits and the forward line of a backward error."""
    wanted = {key_of(argument.tensor) for argument in arguments}
    with no_torch_function():
        names = _names(wanted)
        infos = tuple(_info(session, argument, names) for argument in arguments)
    node = current_autograd_node()
    forward = session.forward_line(node) if node is not None else ""
    return infos, _rule(session, arguments, infos), forward


def _info(session: Rehearsal, argument: Argument, names: dict[int, str]) -> TensorInfo:
    tensor = argument.tensor
    tag = session.tags.get(tensor)
    origin = ""
    if tag is not None and tag.origin is not None:
        verb, file, line = tag.origin
        origin = f"{verb} at {frames.shown(file)}:{line}"
    return TensorInfo(
        argument.name,
        names.get(key_of(tensor), "a temporary"),
        _shape(tensor),
        str(tensor.dtype).replace("torch.", ""),
        str(argument.device),
        origin,
    )


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape; -1 for each dimension but the first of a nested tensor."""
    if tensor.is_nested:
        return (tensor.size(0), *[-1] * (tensor.dim() - 1))
    return tuple(tensor.shape)


def _names(wanted: set[int]) -> dict[int, str]:
    """Storage key -> name: the innermost local variable; a module's attribute beats it."""
    locals_: dict[int, str] = {}
    attributes: dict[int, str] = {}
    seen: set[int] = set()
    for frame in frames.user_frames():
        for owner in _modules(frame):
            if id(owner) not in seen:
                seen.add(id(owner))
                attributes.update(_module_names(owner, wanted))  # the outermost module's name wins
        if frames.is_foreign(frame.f_code):
            continue
        where = f"in {frame.f_code.co_name}, {frames.shown(frame.f_code.co_filename)}:{frame.f_lineno}"
        for name, value in list(frame.f_locals.items()):
            for suffix, tensor in _tensors(value):
                key = key_of(tensor)
                if key in wanted:
                    locals_.setdefault(key, f"`{name}{suffix}` {where}")
    return {**locals_, **attributes}


def _modules(frame: FrameType) -> list[torch.nn.Module]:
    return [value for value in list(frame.f_locals.values()) if isinstance(value, torch.nn.Module)]


def _tensors(value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield "", value
    elif depth < 2 and isinstance(value, dict):
        for key, item in list(value.items())[:50]:
            for suffix, tensor in _tensors(item, depth + 1):
                yield f"[{key!r}]{suffix}", tensor
    elif depth < 2 and isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:50]):
            for suffix, tensor in _tensors(item, depth + 1):
                yield f"[{index}]{suffix}", tensor
    elif (
        depth == 0
        and not isinstance(value, (torch.nn.Module, type))
        and isinstance(getattr(value, "__dict__", None), dict)
    ):
        for name, item in list(vars(value).items())[:50]:
            if isinstance(item, torch.Tensor):
                yield f".{name}", item


def _module_names(root: torch.nn.Module, wanted: set[int]) -> Iterator[tuple[int, str]]:
    kind = type(root).__name__
    for count, (path, module) in enumerate(root.named_modules()):
        if count > _MOST_NAMES:
            return
        prefix = f"{kind}.{path}." if path else f"{kind}."
        for store, what in ((module._parameters, "parameter"), (module._buffers, "buffer")):
            for name, tensor in store.items():
                if tensor is not None and key_of(tensor) in wanted:
                    yield key_of(tensor), f"{prefix}{name} ({what})"
        for name, value in list(module.__dict__.items()):
            if name.startswith("_") and name in ("_parameters", "_buffers", "_modules", "_flat_weights"):
                continue
            if isinstance(value, torch.Tensor):
                if key_of(value) in wanted:
                    yield key_of(value), f"{prefix}{name} ({PLAIN})"
            elif isinstance(value, (list, tuple, dict)):
                yield from _container_names(f"{prefix}{name}", value, wanted)


def _container_names(prefix: str, value: Any, wanted: set[int]) -> Iterator[tuple[int, str]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(pairs)[:100]:
        if isinstance(item, torch.Tensor):
            if key_of(item) in wanted:
                yield key_of(item), f"{prefix}[{key!r}] ({UNREGISTERED})"
        elif isinstance(item, torch.nn.Module):
            for name, tensor in item.named_parameters():
                if key_of(tensor) in wanted:
                    yield key_of(tensor), f"{prefix}[{key!r}].{name} ({UNREGISTERED})"


def _rule(session: Rehearsal, arguments: list[Argument], infos: tuple[TensorInfo, ...]) -> str:
    """The rule whose page tells of this mistake, from what stayed on the CPU and where it came from."""
    stack = frames.user_frames()
    files = [frame.f_code.co_filename.replace("\\", "/") for frame in stack[:12]]
    left = [info for info, argument in zip(infos, arguments, strict=True) if argument.device is CPU]
    if any("/torch/optim/" in file for file in files):
        return "TDL113"
    if any(PLAIN in info.name for info in left):
        return "TDL601"
    if any(UNREGISTERED in info.name for info in left):
        return "TDL602"
    operators = {frame.f_code.co_name for frame in stack[:12]}
    if any(name.startswith(_LOSSES) for name in operators):
        return "TDL114" if any(info.argument == "weight" for info in left) else "TDL101"
    if any(info.name.endswith(("(parameter)", "(buffer)")) for info in left):
        return "TDL104"
    user = next((frame for frame in stack if not frames.is_foreign(frame.f_code)), None)
    if user is not None and user.f_code.co_name == "forward" and _made_in(session, arguments, user):
        return "TDL106"
    if user is None or (stack.index(user) > 0 and any("/torch/nn/modules/" in f for f in files[: stack.index(user)])):
        return "TDL104"
    if user.f_code.co_name == "forward":
        return "TDL106"
    return "TDL130" if any(info.origin.startswith("created") for info in left) else "TDL103"


def _made_in(session: Rehearsal, arguments: list[Argument], frame: FrameType) -> bool:
    """Whether a tensor that is on the CPU was created by ``frame``'s own code."""
    lines = [line for _, _, line in frame.f_code.co_lines() if line]
    for argument in arguments:
        tag = session.tags.get(argument.tensor) if argument.device is CPU else None
        if tag is not None and tag.origin is not None and lines:
            verb, file, line = tag.origin
            if verb == "created" and file == frame.f_code.co_filename and min(lines) <= line <= max(lines):
                return True
    return False
