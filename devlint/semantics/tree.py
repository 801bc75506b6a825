"""Walking LibCST trees without LibCST's own visitors.

`CSTNode.visit` rebuilds every node and recurses; metadata providers annotate every node. Here a walk is a loop
with a stack over the fields that hold code, so that depth is no limit and whitespace costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from devlint.lazycst import cst

# Fields that hold only punctuation and layout: no rule asks for them, and skipping them halves the walk.
_LAYOUT = frozenset(
    "leading_lines lines_after_decorators header footer trailing_whitespace semicolon lpar rpar lbracket rbracket "
    "lbrace rbrace comma equal dot colon first_colon second_colon indent operator_whitespace".split()
)
_fields: dict[type, tuple[str, ...]] = {}
_is_node: dict[type, bool] = {}


def _code_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = tuple(
        f.name for f in dataclasses.fields(kind) if f.name not in _LAYOUT and not f.name.startswith("whitespace")
    )
    _fields[kind] = names
    return names


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes directly below `node` that hold code, in source order of their fields."""
    kind = type(node)
    names = _fields.get(kind) or _code_fields(kind)
    found: list[cst.CSTNode] = []
    for name in names:
        value = getattr(node, name)
        kind = type(value)
        if kind is tuple or kind is list:
            found += value
            continue
        # isinstance() on LibCST's abstract base class takes longer than all the rest of this loop.
        known = _is_node.get(kind)
        if known is None:
            known = _is_node[kind] = isinstance(value, cst.CSTNode)
        if known:
            found.append(value)
    return found


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`node` and all nodes below it, outermost first, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack += reversed(children(current))


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` for a chain of attributes on a name, else an empty string."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    parts.append(node.value)
    return ".".join(reversed(parts))
