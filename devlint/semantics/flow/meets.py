"""What the interpreter notes for the rules: values that meet, moves, and values that leave for the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devlint.lazycst import cst
from devlint.semantics.flow.values import Value
from devlint.units import Unit

MeetKind = Literal["operation", "loss", "index", "module", "numpy", "lengths"]


@dataclass(frozen=True)
class Operand:
    """One value of a meeting, and the expression that gave it.

    `keyword` is the keyword that an argument was given by; "items" where the expression is a container of such values.
    """

    node: cst.BaseExpression
    value: Value
    keyword: str = ""


@dataclass(frozen=True)
class Meet:
    """Values that must share a device, at `node`.

    `operation`: operands of an operator or a torch function. `loss`: arguments of a loss. `index`: an indexed tensor
    and its index, in this order. `module`: a module (first, its place being its parameters') and its arguments.
    `numpy`: a tensor handed to NumPy. `lengths`: the lengths of `pack_padded_sequence`. `in_forward` tells whether it
    happens in a method of an `nn.Module`.
    """

    kind: MeetKind
    node: cst.CSTNode
    unit: Unit
    operands: tuple[Operand, ...]
    in_forward: bool = False


@dataclass(frozen=True)
class Move:
    """A move of a value: `result` is where it is afterwards; `discarded` tells that nobody keeps the result."""

    node: cst.Call
    unit: Unit
    value: Value
    result: Value
    discarded: bool
    loop: cst.For | None


@dataclass(frozen=True)
class Loaded:
    """A DataLoader over tensors that are on an accelerator already: `value` is one of them."""

    node: cst.Call
    unit: Unit
    value: Value


class Notes:
    """All that was noted in one file, in the order in which it was met, each place once for each kind of proof."""

    def __init__(self) -> None:
        self.meets: list[Meet] = []
        self.moves: list[Move] = []
        self.devices: set[cst.CSTNode] = set()
        """Expressions `x.device` in which x is surely a tensor."""
        self.copies: dict[cst.Call, list[Value]] = {}
        """Calls of `torch.tensor`, and what was handed to each of them, run by run."""
        self.loaders: list[Loaded] = []
        self._seen: set[tuple[object, ...]] = set()

    def meet(self, meet: Meet) -> None:
        """Note a meeting."""
        places = tuple(
            (value.place, value.source, value.creator.node if value.creator is not None else None)
            for value in (operand.value for operand in meet.operands)
        )
        key = (meet.kind, meet.node, places)
        if key not in self._seen:
            self._seen.add(key)
            self.meets.append(meet)

    def load(self, loaded: Loaded) -> None:
        """Note a loader."""
        if (loaded.node, "loader") not in self._seen:
            self._seen.add((loaded.node, "loader"))
            self.loaders.append(loaded)

    def move(self, move: Move) -> None:
        """Note a move."""
        key = (move.node, move.value.source, move.value.steps[0].node if move.value.steps else None)
        if key not in self._seen:
            self._seen.add(key)
            self.moves.append(move)
