"""Moving nested batches between devices: the same types come back, and shared tensors stay shared."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import device as Device

from devlint.runtime import walk
from devlint.runtime.device import require

T = TypeVar("T")

_ASYNC = ("cuda", "xpu")  # copies towards these are ordered by a stream
_SYNC = ("cpu", "mps")  # an asynchronous copy towards these can be read before it is there
_BUSY: Any = object()
_UNKNOWN: Any = object()
_NOTHING: frozenset[Any] = frozenset()


class Move(dict[int, Any]):
    """One move in progress: where to, and what was moved already, by identity.

    It is its own table because making one is a good part of what moving a small batch costs.
    """

    __slots__ = ("device", "keep", "non_blocking", "skip")

    device: torch.device
    non_blocking: bool
    skip: frozenset[Any]
    keep: list[Any]  # values made on the way: their ids must not be used again


class Cycle(Exception):
    """A container holds itself."""


def to_device(
    batch: T, device: torch.device | str | int, *, non_blocking: bool | None = None, skip: Iterable[Any] = ()
) -> T:
    """Move every tensor in a nested batch to a device and return the batch, of the same types.

    Containers (dict, list, tuple, namedtuple, set, deque, mappings, their subclasses, dataclasses, attrs classes,
    ``SimpleNamespace``) are rebuilt, with attributes, ``maxlen`` and ``default_factory`` kept and no ``__init__`` or
    ``__post_init__`` run again; a ``PackedSequence`` keeps its ``batch_sizes`` on the CPU; an object with a ``to``
    method is asked to move itself. One tensor under two keys is moved once and stays one tensor. Strings, numbers,
    NumPy arrays, paths, modules, generators and other objects are passed through. Parameters stay Parameters and
    stay connected to the original for autograd.

    Args:
        batch: what a loader yields: tensors of any shape and dtype in any nesting.
        device: where to; ``"cuda"`` without an index is the current device.
        non_blocking: None copies asynchronously towards CUDA and XPU only. True towards the CPU or MPS is refused,
            because such a copy can be read before it has arrived.
        skip: names of mapping keys and fields, at any depth, whose values are left as they are.

    Raises:
        ValueError: for a batch that contains itself, with the path; for ``non_blocking=True`` towards CPU or MPS.
        DeviceUnavailableError: if this process cannot use the device, with the reason.

    Source: the tutorial "A guide on good usage of non_blocking and pin_memory() in PyTorch" for the default of
    ``non_blocking``.
    """
    where = device if type(device) is Device else as_device(device)
    if non_blocking is None:
        non_blocking = where.type in _ASYNC
    elif non_blocking and where.type in _SYNC:
        raise ValueError(
            f"non_blocking=True towards {where}: such a copy can be read before it has arrived, and then gives wrong "
            "data; leave non_blocking out"
        )
    try:
        pair: Any = batch
        if type(pair) is tuple and len(pair) == 2 and type(pair[0]) is Tensor is type(pair[1]):
            inputs, targets = pair  # what most loaders yield, without the bookkeeping of nested batches
            moved = inputs.to(where, non_blocking=non_blocking)
            same = moved if targets is inputs else targets.to(where, non_blocking=non_blocking)
            return (moved, same)  # type: ignore[return-value]
        move = Move()
        move.device = where
        move.non_blocking = non_blocking
        move.skip = names(skip) if skip else _NOTHING
        move.keep = []
        return _go(batch, move)  # type: ignore[no-any-return]
    except Cycle:
        raise ValueError(f"the batch contains itself at {walk.cycle_path(batch, 'batch')}") from None
    except RecursionError:
        raise ValueError("the batch is nested too deeply to be walked (Python's recursion limit)") from None
    except (AssertionError, NotImplementedError, RuntimeError, ModuleNotFoundError):
        require(where)  # says why, if the device is what is missing
        raise


def devices_of(batch: Any, *, name: str = "batch") -> dict[str, torch.device]:
    """The device of every tensor in a nested batch (or module), by its path.

    Paths read as the expression that reaches the tensor: ``batch['x'][0]``, ``batch.mask``; ``name`` is their root.
    A module is listed by its parameters and buffers; ``batch_sizes`` of a ``PackedSequence`` are left out.

    Example:
        >>> devices_of({"x": torch.zeros(2), "y": [torch.zeros(2, device="meta")]})
        {"batch['x']": device(type='cpu'), "batch['y'][0]": device(type='meta')}
    """
    return {path: tensor.device for path, tensor in walk.tensors(batch, name)}


def as_device(device: torch.device | str | int) -> torch.device:
    """A ``torch.device`` from what users write; torch's own answer to a bad name, as a ValueError."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        text = str(error).splitlines()[0] if str(error) else "unknown"
        raise ValueError(f"not a device: {device!r} ({text})") from None


def names(skip: Iterable[Any]) -> frozenset[Any]:
    """What ``skip`` names: one string is one name, not its letters."""
    return frozenset((skip,)) if isinstance(skip, str) else frozenset(skip)


def _go(value: Any, move: Move) -> Any:
    cls = type(value)
    if cls is Tensor:
        key = id(value)
        if key in move:
            return move[key]
        moved = move[key] = value.to(move.device, non_blocking=move.non_blocking)
        return moved
    handler = _HANDLERS.get(cls, _UNKNOWN)
    if handler is _UNKNOWN:
        handler = handler_of(cls)  # type: ignore[arg-type]
    if handler is None:
        return value
    key = id(value)
    if key in move:
        moved = move[key]
        if moved is _BUSY:
            raise Cycle
        return moved
    move[key] = _BUSY
    moved = move[key] = handler(value, move)
    return moved


def _dict(value: Any, move: Move) -> Any:
    skip = move.skip
    if skip:
        return {key: item if key in skip else _go(item, move) for key, item in value.items()}
    return {key: _go(item, move) for key, item in value.items()}


def _list(value: Any, move: Move) -> Any:
    device = move.device
    non_blocking = move.non_blocking
    moved = []
    for item in value:  # _go, in place for tensors
        if type(item) is Tensor:
            key = id(item)
            if key in move:
                moved.append(move[key])
            else:
                new = move[key] = item.to(device, non_blocking=non_blocking)
                moved.append(new)
        else:
            moved.append(_go(item, move))
    return moved


def _tuple(value: Any, move: Move) -> Any:
    return tuple(_list(value, move))


def _tuple_subclass(value: Any, move: Move) -> Any:
    cls = type(value)
    if hasattr(cls, "n_sequence_fields"):  # torch.return_types and their like: no tuple.__new__
        return cls([_go(item, move) for item in value])
    fields = getattr(cls, "_fields", None)
    if fields and move.skip:
        items = [item if name in move.skip else _go(item, move) for name, item in zip(fields, value, strict=False)]
    else:
        items = [_go(item, move) for item in value]
    return _own_attributes(value, tuple.__new__(cls, items), move)


def _packed(value: Any, move: Move) -> Any:
    data, sizes, order, back = value
    moved = (_go(data, move), sizes, _go(order, move), _go(back, move))
    return _own_attributes(value, tuple.__new__(type(value), moved), move)


def _ordered(value: Any, move: Move) -> Any:
    return OrderedDict(_dict(value, move))


def _defaultdict(value: Any, move: Move) -> Any:
    return defaultdict(value.default_factory, _dict(value, move))


def _deque(value: Any, move: Move) -> Any:
    return deque([_go(item, move) for item in value], value.maxlen)


def _set(value: Any, move: Move) -> Any:
    return {_go(item, move) for item in value}


def _frozenset(value: Any, move: Move) -> Any:
    return frozenset([_go(item, move) for item in value])


def _tensor_subclass(value: Any, move: Move) -> Any:
    moved = value.to(move.device, non_blocking=move.non_blocking)
    if moved is value:
        return moved
    if type(moved) is torch.Tensor:  # Parameters, and subclasses without __torch_function__
        moved = moved.as_subclass(type(value))
    known = moved.__dict__
    for name, item in value.__dict__.items():
        if name not in known:
            known[name] = _go(item, move)
    return moved


def _own_attributes(value: Any, moved: Any, move: Move) -> Any:
    own = getattr(value, "__dict__", None)
    if own:
        moved.__dict__.update({name: item if name in move.skip else _go(item, move) for name, item in own.items()})
    return moved


@lru_cache(maxsize=512)
def handler_of(cls: Any) -> Any:
    """The function that moves values of a type, or None for types that are passed through."""
    from devlint.runtime import move_objects

    if issubclass(cls, torch.Tensor):
        return _tensor_subclass
    if issubclass(cls, _PASSED):
        return None
    if issubclass(cls, torch.nn.utils.rnn.PackedSequence):
        return _packed
    to = getattr(cls, "to", None)
    if callable(to):
        return move_objects.mover_with_to(_takes_non_blocking(to))
    if issubclass(cls, tuple):
        return _tuple_subclass
    return move_objects.handler_of(cls)


def _takes_non_blocking(method: Any) -> bool:
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return True
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


_PASSED: tuple[type, ...] = (
    *(str, bytes, bytearray, memoryview, int, float, complex, range, slice, type, type(None)),
    *(torch.device, torch.dtype, torch.Size, torch.Generator, torch.nn.Module),
)
_HANDLERS: dict[type, Any] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    OrderedDict: _ordered,
    defaultdict: _defaultdict,
    deque: _deque,
    set: _set,
    frozenset: _frozenset,
    **dict.fromkeys((str, bytes, int, float, bool, type(None))),
}
