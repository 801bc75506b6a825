"""Code that chooses by itself what to call: version checks, and attempts that fall back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.lazycst import cst
from devlint.units import Unit

_FALLBACK = re.compile(r"ImportError|ModuleNotFoundError|AttributeError|Exception|TypeError|NameError")
_VERSION = re.compile(
    r"version|hasattr|\bdir\(|parse\(|signature|TORCH_\w*(?:GE|LT|HAS|VER|\d)|_ge_|_lt_|is_torch_", re.I
)


def choices(unit: Unit, node: cst.CSTNode) -> Iterator[cst.If | cst.IfExp]:
    """Each `if` and conditional expression of which a branch, not the test, holds `node`; the innermost first."""
    child, above = node, unit.parents.get(node)
    while above is not None:
        if isinstance(above, (cst.If, cst.IfExp)) and child is not above.test:
            yield above
        child, above = above, unit.parents.get(above)


def on_other_branch(unit: Unit, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether one `if` sends control to `one` or to `other`, never to both."""
    first, second = set(_path(unit, one)), set(_path(unit, other))
    return any(
        isinstance(choice, cst.If) and choice in first and (choice.body in first) != (choice.body in second)
        for choice in choices(unit, other)
    )


def _path(unit: Unit, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    above: cst.CSTNode | None = node
    while above is not None:
        yield above
        above = unit.parents.get(above)


def is_compatibility_code(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether `node` stands in a block that picks an API by version, or tries one and falls back to another."""
    child, above = node, unit.parents.get(node)
    while above is not None:
        if isinstance(above, cst.Try):
            if any(handler.type is None or _FALLBACK.search(unit.code(handler.type)) for handler in above.handlers):
                return True
        elif isinstance(above, (cst.If, cst.IfExp)) and child is not above.test:
            if _VERSION.search(unit.code(above.test)):
                return True
        child, above = above, unit.parents.get(above)
    function = unit.enclosing(node, cst.FunctionDef)
    return function is not None and any(
        # `if version < …: return new()`, and then the old call.
        other.orelse is None and _VERSION.search(unit.module.code_for_node(other.test))
        for other in unit.below(function, cst.If)
    )
