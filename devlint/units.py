"""The parts of a file that are parsed by LibCST: a top-level function, a class, or the statements between them.

Each unit is parsed alone, from the file's own text, and only when somebody asks. A unit knows the place of each of
its nodes, in the file's lines and columns, and each node's parent.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, overload

from devlint.findings import Span
from devlint.lazycst import cst
from devlint.positions import Positions
from devlint.semantics.tree import children
from devlint.source import Source

_Node = TypeVar("_Node", bound="cst.CSTNode")
_Other = TypeVar("_Other", bound="cst.CSTNode")
_WORD = re.compile(r"\w+")
_NEWLINE = re.compile(r"\r\n|\r|\n")
# LibCST's parser takes quadratic time over long chains and overflows its stack on very long ones.
_LONG_STATEMENT = 8_000
_CHAIN_LIMIT = 2_000
_CHAIN = re.compile(r"\b(?:and|or|not|if|else|lambda|await)\b|[-+*/@%&|^<>~.(\[{]")
_LITERAL = re.compile(r"""\d[\w.]*|#[^\n]*|\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.S)


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Spare LibCST checking each node that its own parser makes, which takes a third of the parse."""
    checked = cst.CSTNode.__post_init__
    cst.CSTNode.__post_init__ = _nothing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        cst.CSTNode.__post_init__ = checked  # type: ignore[method-assign]


def _nothing(node: cst.CSTNode) -> None:
    """What takes the place of the check."""


class UnitTooDeep(Exception):
    """A unit that LibCST cannot be trusted with; `line` is where its statement begins."""

    def __init__(self, line: int) -> None:
        super().__init__("a statement is too long or too deeply nested to be analysed")
        self.line = line


@dataclass(eq=False)
class Unit:
    """One stretch of a file's top-level statements, from `start` to `end` (character offsets)."""

    source: Source
    start: int
    end: int
    statements: list[ast.stmt] = field(repr=False)
    name: str = ""
    """The function's or class's name; empty for statements."""
    parents: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict, repr=False)
    nodes: list[cst.CSTNode] = field(default_factory=list, repr=False)
    """Every node of `module`, outermost first, in source order; empty until `module` is asked for."""
    _ends: dict[cst.CSTNode, int] = field(default_factory=dict, repr=False)

    @cached_property
    def text(self) -> str:
        """The unit's own text, from the first decorator to the last character."""
        return self.source.text[self.start : self.end]

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word in the unit's text, comments and strings included."""
        return frozenset(_WORD.findall(self.text))

    @cached_property
    def module(self) -> cst.Module:
        """The unit's tree. Raises UnitTooDeep where LibCST might crash or overflow on it."""
        for statement in self.statements:
            self._check_depth(statement)
        try:
            with _unvalidated():
                module = cst.parse_module(self.text)
        except (RecursionError, cst.ParserSyntaxError):
            raise UnitTooDeep(self.statements[0].lineno) from None
        self._index(module)
        return module

    def _index(self, module: cst.Module) -> None:
        """Note each node's parent, its place in the outermost-first order, and where what is below it ends."""
        nodes, ends, parents = self.nodes, self._ends, self.parents
        stack: list[tuple[cst.CSTNode, bool]] = [(module, False)]
        while stack:
            node, done = stack.pop()
            if done:
                ends[node] = len(nodes)
                continue
            nodes.append(node)
            below = children(node)
            if below:
                stack.append((node, True))
                for child in reversed(below):
                    parents[child] = node
                    stack.append((child, False))

    @overload
    def below(self, node: cst.CSTNode) -> list[cst.CSTNode]: ...

    @overload
    def below(self, node: cst.CSTNode, kind: type[_Node], /) -> list[_Node]: ...

    @overload
    def below(self, node: cst.CSTNode, kind: type[_Node], other: type[_Other], /) -> list[_Node | _Other]: ...

    @overload
    def below(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> list[Any]: ...

    def below(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> list[Any]:
        """`node` and all nodes below it, outermost first, in source order; with `kinds`, those of these classes alone.

        The classes are the nodes' own: an abstract one such as `cst.BaseExpression` finds nothing.
        """
        start = self._starts[node]
        end = self._ends.get(node, start + 1)
        if not kinds:
            return self.nodes[start:end]
        found: list[int] = []
        for kind in kinds:
            indexes = self._by_kind.get(kind, [])
            found += indexes[bisect_left(indexes, start) : bisect_left(indexes, end)]
        if len(kinds) > 1:
            found.sort()
        return [self.nodes[index] for index in found]

    def index_of(self, node: cst.CSTNode) -> int:
        """The index of `node` in `nodes`."""
        return self._starts[node]

    def end_of(self, node: cst.CSTNode) -> int:
        """The index in `nodes` behind the last node below `node`."""
        return self._ends.get(node) or self._starts[node] + 1

    @cached_property
    def _starts(self) -> dict[cst.CSTNode, int]:
        return {node: index for index, node in enumerate(self.nodes)}

    @cached_property
    def _by_kind(self) -> dict[type[cst.CSTNode], list[int]]:
        """The indexes in `nodes` of each class of nodes, ascending."""
        found: dict[type[cst.CSTNode], list[int]] = {}
        for index, node in enumerate(self.nodes):
            found.setdefault(type(node), []).append(index)
        return found

    def _check_depth(self, statement: ast.stmt) -> None:
        """Refuse a simple statement that chains more operators than LibCST parses in linear time."""
        pending = [statement]
        while pending:
            current = pending.pop()
            nested = [
                child
                for name in ("body", "orelse", "finalbody", "handlers", "cases")
                for child in getattr(current, name, ())
            ]
            if nested:
                pending += nested
                continue
            start = self.source.offset_utf8(current.lineno, current.col_offset)
            end = self.source.offset_utf8(current.end_lineno or current.lineno, current.end_col_offset or 0)
            if end - start > _LONG_STATEMENT:
                code = _LITERAL.sub("", self.source.text[start:end])
                if len(_CHAIN.findall(code)) > _CHAIN_LIMIT:
                    raise UnitTooDeep(current.lineno)

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self)

    @cached_property
    def above(self) -> int:
        """How many lines stand above the unit."""
        return self.source.place(self.start)[0] - 1

    @cached_property
    def _lost_columns(self) -> dict[int, int]:
        """By line of the unit, how many characters LibCST drops at its start: those up to a form feed."""
        if "\f" not in self.text:
            return {}
        lines = zip(_NEWLINE.split(self.text), _NEWLINE.split(self.module.code), strict=False)
        return {number: len(ours) - len(theirs) for number, (ours, theirs) in enumerate(lines, 1)}

    def span(self, node: cst.CSTNode) -> Span:
        """Where `node` stands in the file, without the parentheses around it and the decorators above it."""
        above, lost = self.above, self._lost_columns
        try:
            at = self._positions.of(node)
        except RecursionError:
            raise UnitTooDeep(above + 1) from None
        return Span(
            at.start.line + above,
            at.start.column + lost.get(at.start.line, 0),
            at.end.line + above,
            at.end.column + lost.get(at.end.line, 0),
        )

    def offsets(self, node: cst.CSTNode) -> tuple[int, int]:
        """The character offsets of `span(node)`."""
        span = self.span(node)
        start = self.source.offset(span.line, span.column)
        end = self.source.offset(span.end_line, span.end_column)
        return start, end

    def code(self, node: cst.CSTNode) -> str:
        """The file's text of `node`, exactly as it stands there."""
        start, end = self.offsets(node)
        return self.source.text[start:end]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node directly above `node`; None for the module."""
        return self.parents.get(node)

    def enclosing(self, node: cst.CSTNode, *kinds: type[_Node]) -> _Node | None:
        """The nearest node above `node` that is of one of `kinds`."""
        above = self.parents.get(node)
        while above is not None:
            if isinstance(above, kinds):
                return above
            above = self.parents.get(above)
        return None


def split_units(source: Source, tree: ast.Module) -> list[Unit]:
    """The units of a file, in order: each top-level function and class, and each run of other statements."""
    units: list[Unit] = []
    run: list[ast.stmt] = []

    def close() -> None:
        if run:
            units.append(_unit(source, list(run), ""))
            run.clear()

    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            close()
            units.append(_unit(source, [statement], statement.name))
        else:
            run.append(statement)
    close()
    return units


def _unit(source: Source, statements: list[ast.stmt], name: str) -> Unit:
    first, last = statements[0], statements[-1]
    lines = [first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]
    starts = source.line_starts
    end_line = last.end_lineno or last.lineno
    end = starts[end_line] if end_line < len(starts) else len(source.text)
    return Unit(source, starts[min(lines) - 1], end, statements, name)
