"""Reading nested batches: what a value holds, and under which path. Nothing is changed or copied here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

Child = tuple[str, Any]


@lru_cache(maxsize=512)
def field_names(cls: Any) -> tuple[str, ...]:
    """The names of the attributes that a class declares: dataclass and attrs fields, and slots."""
    names: dict[str, None] = {}
    if dataclasses.is_dataclass(cls):
        names.update(dict.fromkeys(field.name for field in dataclasses.fields(cls)))
    names.update(dict.fromkeys(attribute.name for attribute in getattr(cls, "__attrs_attrs__", ())))
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                names[f"_{base.__name__.lstrip('_')}{slot}" if private else slot] = None
    return tuple(names)


def attributes(value: Any) -> Iterator[Child]:
    """The attributes that are set on an object: declared ones first, then those of its ``__dict__``."""
    cls: Any = type(value)
    declared = field_names(cls)
    own: dict[str, Any] = getattr(value, "__dict__", {})
    for name in declared:
        try:
            yield name, getattr(value, name)
        except AttributeError:  # declared, never set
            continue
    for name in [name for name in own if name not in declared]:
        yield name, own[name]


def is_record(cls: type) -> bool:
    """Whether a class is a dataclass or made by attrs: its attributes are its content."""
    return dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")


def children(value: Any) -> Iterator[Child]:
    """What a container holds, as (path suffix, value): ``['x']``, ``[0]``, ``.field``. Nothing for other values."""
    if isinstance(value, (str, bytes, bytearray, range, memoryview, torch.Size)):
        return
    if isinstance(value, PackedSequence):  # its batch_sizes belong on the CPU
        yield from ((f".{name}", getattr(value, name)) for name in ("data", "sorted_indices", "unsorted_indices"))
    elif isinstance(value, torch.nn.Module):
        for name, tensor in named_tensors(value):
            yield f".{name}", tensor
    elif isinstance(value, Mapping):
        for key in list(value.keys()):
            yield f"[{key!r}]", value[key]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, item in zip(value._fields, value, strict=False):
            yield f".{name}", item
    elif isinstance(value, (Sequence, Set)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif is_record(type(value)) or (callable(getattr(value, "to", None)) and not isinstance(value, type)):
        for name, item in attributes(value):
            yield f".{name}", item


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in a nested batch with its path, in order. A container inside itself is entered once."""
    yield from _tensors(value, path, set())


def _tensors(value: Any, path: str, inside: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    key = id(value)
    if key in inside:
        return
    inside.add(key)
    for suffix, item in children(value):
        yield from _tensors(item, path + suffix, inside)
    inside.discard(key)


def named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a module with their names."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def cycle_path(value: Any, path: str) -> str:
    """The path at which a batch first holds one of the containers around it, or ``path`` itself where none is found."""
    stack: list[tuple[Any, str, Iterator[Child]]] = [(value, path, children(value))]
    inside = {id(value)}
    while stack:
        owner, here, items = stack[-1]
        found = next(items, None)
        if found is None:
            stack.pop()
            inside.discard(id(owner))
            continue
        suffix, item = found
        if id(item) in inside:
            return here + suffix
        if not isinstance(item, torch.Tensor):
            inside.add(id(item))
            stack.append((item, here + suffix, children(item)))
    return path
