"""What the interpreter knows of a value: its kind, where it lives, and how it came there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from devlint.lazycst import cst
from devlint.units import Unit

Kind = Literal[
    "unknown",
    "tensor",
    "module",
    "loss",
    "device",
    "loader",
    "batch",
    "container",
    "host",
    "optimizer",
    "class",
    "object",
    "function",
]
Source = Literal[
    "",
    "factory",
    "element",
    "parameter",
    "attribute",
    "numpy",
    "moved",
    "assumed",
    "registered",
    "result",
    "constant",
    "held",
]


@dataclass(frozen=True)
class Place:
    """Where a tensor or module is.

    `cpu`: certainly the CPU. `cpu0`: there, and 0-dimensional, so that it mixes with every device. `empty`: there, and
    without elements, so that it matters only where something is joined to it. `accelerator`: the
    device that the expression `symbol` names, which may be an accelerator. `input`: where the caller put parameter
    `symbol`. `home`: where the module is. `literal` tells a device that the code itself spells, such as "cuda".
    """

    kind: Literal["cpu", "cpu0", "empty", "accelerator", "input", "home", "meta"]
    symbol: str = ""
    literal: bool = False


CPU = Place("cpu", "cpu")
CPU0 = Place("cpu0", "cpu")
HOME = Place("home", "the module's device")
EMPTY = Place("empty", "cpu")
META = Place("meta", "meta")


@dataclass(frozen=True)
class Step:
    """One step of a value's history: a node, the unit that it stands in, and what happened there."""

    node: cst.CSTNode
    unit: Unit
    text: str


@dataclass(frozen=True, eq=False)
class Value:
    """An abstract value.

    `source` says how the value came to be (an `attribute` is a module's,
    what is `held` a plain object's, `assumed` is a tensor of which only the move is known); `creator` is the call that made it, for a fix; `inputs` are the parameters
    that its shape was taken from. `ident` is shared by aliases of one object. `items` are a container's values, by
    position or key. `guarded` marks a place that a capability test such as `if use_cuda:` decided. `maybe_scalar` tells
    that the tensor may have no dimension: such a one on the CPU mixes with everything, and indexes like a number.
    `defined` is the class of this file that a module or another object is an instance of. A `function`'s `creator` is
    its definition, its `items` the arguments that `partial` bound.
    """

    kind: Kind = "unknown"
    place: Place | None = None
    source: Source = ""
    steps: tuple[Step, ...] = ()
    creator: Step | None = None
    ident: object = field(default_factory=object)
    items: Mapping[object, Value] | None = None
    inputs: frozenset[str] = frozenset()
    guarded: bool = False
    name: str = ""
    maybe_scalar: bool = False
    defined: tuple[Unit, cst.ClassDef] | None = None

    @property
    def is_tensor(self) -> bool:
        """Whether this is a tensor whose place is known."""
        return self.kind == "tensor" and self.place is not None

    def at(self, place: Place | None, step: Step | None = None, source: Source = "moved") -> Value:
        """The same value, moved to `place`."""
        steps = (*self.steps, step) if step is not None else self.steps
        return replace(self, place=place, steps=steps, source=source, ident=object())


UNKNOWN = Value()
HOST = Value("host")


def join(one: Value, other: Value) -> Value:
    """What is known of a value that is one or the other."""
    if one is other or one.ident is other.ident:
        return one
    if one.kind == other.kind and one.place == other.place:
        if one.kind == "container":
            return _join_containers(one, other)
        return one if len(one.steps) >= len(other.steps) else other
    return UNKNOWN


def mixes(one: Value, other: Value) -> bool:
    """Whether two operands may meet: False only where one is surely on the CPU and the other may not be."""
    return not (_stays_behind(one, other) or _stays_behind(other, one))


def _stays_behind(one: Value, other: Value) -> bool:
    if one.place is None or other.place is None or one.maybe_scalar:
        return False
    return one.place.kind == "cpu" and other.place.kind in ("accelerator", "input", "home")


def _join_containers(one: Value, other: Value) -> Value:
    """A list that was appended to on one way only is as good as the longer one, where all items are alike."""
    items = [*(one.items or {}).values(), *(other.items or {}).values()]
    if one.items is None or other.items is None or not items:
        return Value("container", items={} if not items and one.items is not None and other.items is not None else None)
    if len({(item.kind, item.place) for item in items}) != 1:
        return Value("container")
    same = one.items.keys() == other.items.keys()
    return one if same else Value("container", items={"*": items[-1]})
