"""Where the nodes of a unit stand, in lines and columns of its text.

LibCST tells places by writing a whole tree out again, which costs as much as parsing it. `ast` already knows where each
statement begins, so only the statement that a node is in is written out, compound ones without their bodies.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, cast

from devlint.lazycst import cst

if TYPE_CHECKING:
    from libcst.metadata import CodeRange

    from devlint.units import Unit


class Positions:
    """The places of a unit's nodes, computed statement by statement as they are asked for."""

    def __init__(self, unit: Unit) -> None:
        from libcst.metadata import PositionProvider

        self._unit = unit
        # The provider alone, for a MetadataWrapper walks the tree once more, on behalf of no other provider.
        self._provider = PositionProvider()

    def of(self, node: cst.CSTNode) -> CodeRange:
        """The place of `node`. Raises RecursionError where it is nested too deeply."""
        known = self._provider._computed
        if node not in known:
            statement = self._statement_of(node)
            if statement is not None:
                self._write_out(statement)
            if node not in known:
                self._provider._gen_impl(self._unit.module)
        return cast("CodeRange", known[node])

    def _statement_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        above: cst.CSTNode | None = node
        while above is not None and above not in self._starts:
            if isinstance(above, (cst.BaseSuite, cst.SimpleStatementLine, cst.Decorator)):
                return None
            above = self._unit.parent(above)
        # Nothing of a `try` stands outside its bodies but the exceptions' names.
        return None if isinstance(above, (cst.Try, cst.TryStar)) else above

    @cached_property
    def _starts(self) -> dict[cst.CSTNode, ast.stmt]:
        """Each statement as `ast` has it; none where the two parsers disagree on how many there are.

        None in a text with form feeds either, of which `ast` counts the columns otherwise than LibCST.
        """
        kinds = {*cst.BaseSmallStatement.__subclasses__(), *cst.BaseCompoundStatement.__subclasses__()}
        ours = [node for node in self._unit.nodes if type(node) in kinds]
        theirs = [found for statement in self._unit.statements for found in _statements(statement)]
        same = len(ours) == len(theirs) and "\f" not in self._unit.text
        return dict(zip(ours, theirs, strict=True)) if same else {}

    def _write_out(self, statement: cst.CSTNode) -> None:
        from libcst.metadata.position_provider import PositionProvidingCodegenState

        unit, start = self._unit, self._starts[statement]
        offset = unit.source.offset_utf8(start.lineno, start.col_offset)
        line, column = unit.source.place(offset)
        module = unit.module
        state = PositionProvidingCodegenState(
            default_indent=module.default_indent, default_newline=module.default_newline, provider=self._provider
        )
        block = unit.enclosing(statement, cst.IndentedBlock)
        while block is not None:
            state.indent_tokens.insert(0, module.default_indent if block.indent is None else block.indent)
            block = unit.enclosing(block, cst.IndentedBlock)
        if isinstance(statement, cst.BaseCompoundStatement):
            if isinstance(statement, cst.If) and unit.source.text.startswith("elif", offset):
                column += len("elif") - len("if")
            statement = _header(statement)
            # It writes the indentation of its own line.
            column -= sum(map(len, state.indent_tokens))
        state.line, state.column = line - unit.above, column
        statement._codegen(state)


def _header(statement: cst.BaseCompoundStatement) -> cst.BaseCompoundStatement:
    """The statement without what stands above its keyword, and without its body."""
    changes: dict[str, object] = {"leading_lines": (), "orelse": None, "cases": ()}
    changes |= {"decorators": (), "lines_after_decorators": (), "body": cst.SimpleStatementSuite([cst.Pass()])}
    return statement.with_changes(**{name: value for name, value in changes.items() if hasattr(statement, name)})


def _statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statement, and those below it, in source order."""
    pending: list[ast.AST] = [statement]
    while pending:
        current = pending.pop()
        if isinstance(current, ast.stmt):
            yield current
        for name in ("finalbody", "orelse", "handlers", "cases", "body"):
            pending += reversed(getattr(current, name, ()))
