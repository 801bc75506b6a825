"""Units: every node's place and text are the file's own."""

import ast

import libcst as cst
import pytest
from libcst.metadata import PositionProvider

from devlint.positions import Positions
from devlint.semantics.tree import dotted, walk
from devlint.source import Source
from devlint.units import Unit, split_units

CODE = """\
import torch

@decorated(1)
def f(x, *args):
    y = (x + 1) * f(
        x,  # one
      *args, **{"a": (2)},
    )
    return [*y, x[:, 1], lambda: (yield)], "é" "中", y.a .b(1)\\
        .c

z = f(*[1], (2))
"""

NESTED = """\
@one
# between
@two(3)
class C(z.D,
        metaclass=M):
  '''Two columns.'''

  a: int = (f(
     1))
  # a comment
  @property
  def b(self) -> "int": return f"{self.a!r:>{(1)}}" + \\
     "x"

def g(x, y):
    if x:
        pass
    elif (y
          or x): z = (x +
               1); w = 2
    else:
        while x < (3): break
    async def g(): return 1
    with open("a") as b, (c): # why
        try:
            for i, j in zip(x, (y)):
                deep(x)
        except (ValueError, TypeError) as error:
            raise
        finally:
            del y[0]
"""


def units(text: str) -> list[Unit]:
    source = Source.from_text(text, "a.py")
    return split_units(source, ast.parse(text))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("feed", ["", "\x0c"])
def test_places_are_the_same_asked_one_by_one_as_for_a_whole_unit(newline: str, feed: str) -> None:
    fed = CODE.replace("\n    y", f"\n{feed}    y").replace("\nz", f"\n{feed}z")
    for unit in units((fed + NESTED).replace("\n", newline)):
        whole = PositionProvider()
        whole._gen_impl(unit.module)
        for node in reversed(unit.nodes):
            assert Positions(unit).of(node) == whole._computed[node], unit.module.code_for_node(node)


def test_the_place_of_one_node_does_not_cost_those_of_the_unit() -> None:
    (unit,) = [unit for unit in units(NESTED) if unit.name == "g"]
    call = next(node for node in unit.below(unit.module, cst.Call) if dotted(node.func) == "deep")
    assert unit.code(call) == "deep(x)"
    assert len(unit._positions._provider._computed) < 10


def test_places_are_characters_of_the_file() -> None:
    text = CODE.replace("\n    y", "\n\x0c    y")
    source = Source.from_text(text)
    for unit in units(text):
        for node in walk(unit.module):
            if isinstance(node, cst.Name):
                start, end = unit.offsets(node)
                assert text[start:end] == node.value
                assert source.place(start) == (unit.span(node).line, unit.span(node).column)
