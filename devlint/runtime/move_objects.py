"""Moving what is no plain container: objects with ``to``, records, subclasses and foreign collections."""

from __future__ import annotations

import array
import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from types import MappingProxyType, SimpleNamespace
from typing import Any

from devlint.runtime import walk
from devlint.runtime.move import Move, _go

Handler = Callable[[Any, Move], Any]


def handler_of(cls: type) -> Handler | None:
    """The function that moves values of a class that has no ``to`` method; None for what is passed through."""
    if issubclass(cls, array.array):
        return None
    if issubclass(cls, MappingProxyType):
        return _proxy
    if issubclass(cls, Mapping):
        return _mapping
    if issubclass(cls, MutableSequence):
        return _sequence
    if issubclass(cls, Set):
        return _set
    if walk.is_record(cls) or issubclass(cls, (Sequence, SimpleNamespace)):
        return _record
    return _with_instance_to


def mover_with_to(takes_non_blocking: bool) -> Handler:
    """Asks an object to move itself; a ``to`` that returns None has moved the object in place."""

    def with_to(value: Any, move: Move) -> Any:
        arguments = {"non_blocking": move.non_blocking} if takes_non_blocking else {}
        moved = value.to(move.device, **arguments)
        return value if moved is None else moved

    return with_to


def _with_instance_to(value: Any, move: Move) -> Any:
    """Proxies that forward ``to`` without having it in their class; other objects are passed through."""
    to = getattr(value, "to", None) if "to" in getattr(value, "__dict__", ()) or _forwards(value) else None
    if not callable(to):
        return value
    moved = to(move.device)
    return value if moved is None else moved


def _forwards(value: Any) -> bool:
    return hasattr(type(value), "__getattr__")


def _record(value: Any, move: Move) -> Any:
    """A copy of an object with its attributes moved; neither ``__init__`` nor ``__post_init__`` runs again."""
    moved = copy.copy(value)
    content = list(walk.attributes(value))
    move.keep.append(content)
    for name, item in content:
        new = item if name in move.skip else _go(item, move)
        if new is not item:
            object.__setattr__(moved, name, new)  # frozen classes refuse their own
    return moved


def _proxy(value: Any, move: Move) -> Any:
    return MappingProxyType({key: _item(key, item, move) for key, item in value.items()})


def _mapping(value: Any, move: Move) -> Any:
    """A copy whose attributes are moved first, so that a mapping over an inner dict does not write to the original."""
    items = {key: value[key] for key in value}
    move.keep.append(items)
    moved_items = {key: _item(key, item, move) for key, item in items.items()}
    if not isinstance(value, MutableMapping):
        moved = _record(value, move)
        if all(moved[key] is item for key, item in moved_items.items()):
            return moved
        return _rebuilt(value, moved_items)
    moved = _record(value, move)
    for key, item in moved_items.items():
        if moved[key] is not item:
            moved[key] = item
    return moved


def _item(key: Any, item: Any, move: Move) -> Any:
    return item if key in move.skip else _go(item, move)


def _sequence(value: Any, move: Move) -> Any:
    items = list(value)
    move.keep.append(items)
    moved_items = [_go(item, move) for item in items]
    moved = _record(value, move)
    for index, item in enumerate(moved_items):
        if moved[index] is not item:
            moved[index] = item
    return moved


def _set(value: Any, move: Move) -> Any:
    items = [_go(item, move) for item in value]
    if isinstance(value, frozenset):
        moved: Any = frozenset.__new__(type(value), items)
        for name, item in list(walk.attributes(value)):
            object.__setattr__(moved, name, _go(item, move))
        return moved
    if isinstance(value, MutableSet):
        moved = _record(value, move)
        moved.clear()
        for item in items:
            moved.add(item)
        return moved
    return _rebuilt(value, items)


def _rebuilt(value: Any, content: Any) -> Any:
    """An immutable collection made anew from its content, for want of another way."""
    cls = type(value)
    try:
        return cls(content)
    except Exception as error:
        raise TypeError(
            f"to_device cannot rebuild a {cls.__module__}.{cls.__qualname__} from its items ({error}); give the class "
            "a to(device) method, or name its key in skip"
        ) from error
