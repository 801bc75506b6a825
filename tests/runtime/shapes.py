"""The shapes of batches that a mover must survive: name -> (how to make one, the tensors that must be moved).

``benchmarks/runtime_shapes.py`` runs the same table over other libraries.
"""

import dataclasses
import types
import typing
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import attrs
import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence

Point = namedtuple("Point", "x y")


def tensor() -> torch.Tensor:
    return torch.zeros(2)


class TypedPoint(typing.NamedTuple):
    x: torch.Tensor
    n: int = 3


@dataclasses.dataclass
class Plain:
    x: torch.Tensor
    n: int = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: torch.Tensor


@dataclasses.dataclass
class Derived:
    x: torch.Tensor
    y: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.y = self.x + 1


@dataclasses.dataclass
class Scaled:
    x: torch.Tensor
    scale: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, scale: float) -> None:
        if self.x.device.type != "cpu":
            raise RuntimeError("__post_init__ ran again")
        self.x = self.x * scale


@attrs.define
class Attrs:
    x: torch.Tensor


@attrs.frozen
class AttrsFrozen:
    x: torch.Tensor


class MovesItself:
    def __init__(self) -> None:
        self.x = tensor()

    def to(self, device: Any) -> "MovesItself":
        self.x = self.x.to(device)
        return self


class MovesInPlace:
    def __init__(self) -> None:
        self.x = tensor()

    def to(self, device: Any, non_blocking: bool = False) -> None:
        self.x = self.x.to(device)


class MovesToNew:
    def __init__(self, x: torch.Tensor | None = None) -> None:
        self.x = tensor() if x is None else x

    def to(self, *args: Any, **kwargs: Any) -> "MovesToNew":
        return MovesToNew(self.x.to(*args, **kwargs))


class LabelledDict(dict):
    def __init__(self, label: Any, **items: Any) -> None:
        super().__init__(**items)
        self.label = label


class LabelledList(list):
    def __init__(self, label: Any, items: Any = ()) -> None:
        super().__init__(items)
        self.label = label


class LabelledTuple(tuple):
    def __new__(cls, label: Any, items: Any) -> "LabelledTuple":
        self = super().__new__(cls, items)
        self.label = label
        return self


class InnerDict(MutableMapping):
    """A mapping over a dict of its own, which a shallow copy would share."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class ReadOnly(Mapping):
    def __init__(self, items: Any) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclasses.dataclass
class ModelOutputLike(OrderedDict):
    """Both a dataclass and a dict, as Hugging Face's model outputs are: no update(), keys mirrored by attributes."""

    x: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            super().__setitem__(field.name, getattr(self, field.name))

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("update() is not to be used")

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))


class SubTensor(torch.Tensor):
    pass


def labelled_tensor() -> SubTensor:
    made = tensor().as_subclass(SubTensor)
    made.label = "kept"
    return made


def packed() -> Any:
    return pack_padded_sequence(torch.zeros(2, 3, 1), torch.tensor([3, 2]), batch_first=True)


def shared() -> dict[str, torch.Tensor]:
    one = tensor()
    return {"a": one, "b": one}


Shape = tuple[Callable[[], Any], Callable[[Any], list[torch.Tensor]]]

SHAPES: dict[str, Shape] = {
    "tensor": (tensor, lambda r: [r]),
    "tuple (x, y)": (lambda: (tensor(), tensor()), list),
    "list": (lambda: [tensor(), [tensor()]], lambda r: [r[0], r[1][0]]),
    "dict": (lambda: {"a": tensor(), "b": {"c": tensor()}}, lambda r: [r["a"], r["b"]["c"]]),
    "namedtuple": (lambda: Point(tensor(), 1), lambda r: [r.x]),
    "typing.NamedTuple": (lambda: TypedPoint(tensor()), lambda r: [r.x]),
    "OrderedDict": (lambda: OrderedDict(a=tensor()), lambda r: [r["a"]]),
    "defaultdict": (lambda: defaultdict(list, a=tensor()), lambda r: [r["a"]]),
    "Counter": (Counter, lambda r: []),
    "UserDict": (lambda: UserDict(a=tensor()), lambda r: [r["a"]]),
    "mappingproxy": (lambda: types.MappingProxyType({"a": tensor()}), lambda r: [r["a"]]),
    "dict subclass with __init__": (lambda: LabelledDict("kept", x=tensor()), lambda r: [r["x"]]),
    "list subclass with __init__": (lambda: LabelledList("kept", [tensor()]), lambda r: [r[0]]),
    "deque with maxlen": (lambda: deque([tensor()], maxlen=4), lambda r: [r[0]]),
    "set": (lambda: {tensor()}, list),
    "dataclass": (lambda: Plain(tensor()), lambda r: [r.x]),
    "dataclass, frozen": (lambda: Frozen(tensor()), lambda r: [r.x]),
    "dataclass, slots": (lambda: Slotted(tensor()), lambda r: [r.x]),
    "dataclass, init=False field": (lambda: Derived(tensor()), lambda r: [r.x, r.y]),
    "dataclass, InitVar": (lambda: Scaled(tensor()), lambda r: [r.x]),
    "attrs": (lambda: Attrs(tensor()), lambda r: [r.x]),
    "PackedSequence": (packed, lambda r: [r.data]),
    "object, to() returns self": (MovesItself, lambda r: [r.x]),
    "object, to() returns None": (MovesInPlace, lambda r: [r.x]),
    "object, to() returns new": (MovesToNew, lambda r: [r.x]),
    "tensor subclass": (labelled_tensor, lambda r: [r]),
    "Parameter": (lambda: torch.nn.Parameter(tensor()), lambda r: [r]),
    "strings": (lambda: {"s": ["a", "b"], "b": b"x", "t": tensor()}, lambda r: [r["t"]]),
    "None and numbers": (lambda: (None, 3, 2.5, tensor()), lambda r: [r[3]]),
    "range": (lambda: (range(3), tensor()), lambda r: [r[1]]),
    "NumPy array": (lambda: (np.zeros(2), tensor()), lambda r: [r[1]]),
    "one tensor under two keys": (shared, lambda r: [r["a"], r["b"]]),
    "generator beside a tensor": (lambda: ((tensor() for _ in range(1)), tensor()), lambda r: [r[1]]),
}

MORE: dict[str, Shape] = {
    "dataclass, frozen and slots": (lambda: FrozenSlotted(tensor()), lambda r: [r.x]),
    "attrs, frozen": (lambda: AttrsFrozen(tensor()), lambda r: [r.x]),
    "tuple subclass": (lambda: LabelledTuple("kept", [tensor()]), lambda r: [r[0]]),
    "mapping over an inner dict": (lambda: InnerDict(a=tensor()), lambda r: [r["a"]]),
    "read-only mapping": (lambda: ReadOnly({"a": tensor()}), lambda r: [r["a"]]),
    "dict and dataclass at once": (lambda: ModelOutputLike(x=tensor()), lambda r: [r["x"], r.x]),
    "UserList": (lambda: UserList([tensor()]), lambda r: [r[0]]),
    "frozenset": (lambda: frozenset([tensor()]), list),
    "SimpleNamespace": (lambda: types.SimpleNamespace(a=tensor()), lambda r: [r.a]),
    "torch.return_types": (lambda: torch.zeros(2, 2).max(0), lambda r: [r.values, r.indices]),
    "torch.Size": (lambda: (torch.Size([2]), tensor()), lambda r: [r[1]]),
}


def verdict(batch: Any, moved: Any, tensors: Callable[[Any], list[torch.Tensor]], device: str) -> str:
    """``ok``, or what went wrong: ``left`` on the CPU, ``type`` or attribute lost, ``alias`` duplicated."""
    found = tensors(moved)
    if any(item.device.type != device for item in found):
        return "left"
    parameter = isinstance(batch, torch.nn.Parameter)  # torch's own .to() gives a plain tensor: not held against anyone
    if type(moved) is not type(batch) and not parameter:
        return "type"
    for attribute in ("label", "maxlen", "default_factory", "n"):
        if hasattr(batch, attribute) and getattr(moved, attribute, None) != getattr(batch, attribute):
            return "type"
    before = tensors(batch) if isinstance(batch, dict) else []
    if len({id(item) for item in before}) != len({id(item) for item in found[: len(before)]}):
        return "alias"
    return "ok"
