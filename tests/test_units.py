"""Units: every node's place and text are the file's own."""

import ast

import libcst as cst
import pytest

from devlint.semantics.tree import walk
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


def units(text: str) -> list[Unit]:
    source = Source.from_text(text, "a.py")
    return split_units(source, ast.parse(text))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("feed", ["", "\x0c"])
def test_text_is_the_same_before_and_after_places_are_known(newline: str, feed: str) -> None:
    text = CODE.replace("\n    y", f"\n{feed}    y").replace("\nz", f"\n{feed}z").replace("\n", newline)
    for early, late in zip(units(text), units(text), strict=True):
        assert late.span(late.module) is not None
        pairs = zip(walk(early.module), walk(late.module), strict=True)
        expressions = [pair for pair in pairs if isinstance(pair[0], cst.BaseExpression)]
        for one, other in expressions:
            early.__dict__.pop("_ranges", None)
            assert early.code(one) == late.code(other)
        assert expressions


def test_places_are_characters_of_the_file() -> None:
    text = CODE.replace("\n    y", "\n\x0c    y")
    source = Source.from_text(text)
    for unit in units(text):
        for node in walk(unit.module):
            if isinstance(node, cst.Name):
                start, end = unit.offsets(node)
                assert text[start:end] == node.value
                assert source.place(start) == (unit.span(node).line, unit.span(node).column)
