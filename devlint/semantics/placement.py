"""Where the tensors of a file live: the face that the rules see of the interpreter in `flow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devlint.semantics.flow.meets import Meet, Move
from devlint.semantics.flow.world import World
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File


class Placement:
    """What the interpreter noted in one file; each unit is run once, when it is asked for."""

    def __init__(self, file: File) -> None:
        self.world = World(file)

    def meets(self, unit: Unit) -> list[Meet]:
        """The places, in `unit` or in what it calls, at which values on different devices meet."""
        self.world.interpret(unit)
        return self.world.notes.meets

    def moves(self, unit: Unit) -> list[Move]:
        """The moves that `unit` makes."""
        self.world.interpret(unit)
        return [move for move in self.world.notes.moves if move.unit is unit]
