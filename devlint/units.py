"""The parts of a file that are parsed by LibCST: a top-level function, a class, or the statements between them.

Each unit is parsed alone, from the file's own text, and only when somebody asks. A unit knows the place of each of
its nodes, in the file's lines and columns, and each node's parent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from devlint.findings import Span
from devlint.lazycst import cst
from devlint.semantics.tree import children
from devlint.source import Source

if TYPE_CHECKING:
    from libcst.metadata import CodeRange

_Node = TypeVar("_Node", bound="cst.CSTNode")
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

    def below(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """`node` and all nodes below it, outermost first, in source order."""
        start = self._starts[node]
        return self.nodes[start : self._ends.get(node, start + 1)]

    def index_of(self, node: cst.CSTNode) -> int:
        """The index of `node` in `nodes`."""
        return self._starts[node]

    def end_of(self, node: cst.CSTNode) -> int:
        """The index in `nodes` behind the last node below `node`."""
        return self._ends.get(node) or self._starts[node] + 1

    @cached_property
    def _starts(self) -> dict[cst.CSTNode, int]:
        return {node: index for index, node in enumerate(self.nodes)}

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
    def _ranges(self) -> Mapping[cst.CSTNode, CodeRange]:
        """Each node's place in the unit, as LibCST tells it."""
        from libcst.metadata import PositionProvider

        # Positions cost as much as the parse, so they are computed only for a unit that has something to report; and
        # by the provider alone, for a MetadataWrapper walks the tree once more, on behalf of no other provider.
        provider = PositionProvider()
        try:
            provider._gen_impl(self.module)
        except RecursionError:
            raise UnitTooDeep(self._above + 1) from None
        return cast("Mapping[cst.CSTNode, CodeRange]", provider._computed)

    @cached_property
    def _above(self) -> int:
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
        at, above, lost = self._ranges[node], self._above, self._lost_columns
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
        if "_ranges" not in self.__dict__ and isinstance(node, cst.BaseExpression):
            text = self._generated(node)
            if text:
                return text
        start, end = self.offsets(node)
        return self.source.text[start:end]

    def _generated(self, node: cst.BaseExpression) -> str:
        """What LibCST makes of an expression where that is sure to be the file's text, else nothing.

        It spares computing the places of a whole unit. Of several lines, LibCST knows the indentation by the statement
        only; parentheses, and the comma after a starred element, are no part of a node's place.
        """
        if getattr(node, "lpar", ()) or isinstance(node, cst.StarredElement):
            return ""
        try:
            text = self.module.code_for_node(node)
        except RecursionError:
            return ""
        return "" if "\n" in text or "\r" in text else text

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
