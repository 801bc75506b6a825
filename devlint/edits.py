"""Edits that rules make, as spans of the original text: whatever is not edited stays byte for byte.

Each function returns the edit, or None where it cannot be made without harm (a comment in the way, a form of code
that has no room for it); a rule then reports without a fix.
"""

from __future__ import annotations

from devlint.findings import Edit
from devlint.lazycst import cst
from devlint.units import Unit


def replace(unit: Unit, node: cst.CSTNode, text: str) -> Edit:
    """Replace `node`, inside its own parentheses, by `text`."""
    return Edit(*unit.offsets(node), text)


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.Arg | None:
    """The argument of `call` given by keyword `name`, or by `position` where no `*args` stands before it."""
    for index, arg in enumerate(call.args):
        if arg.star == "*" and position is not None and index <= position:
            position = None
        if arg.keyword is not None:
            if arg.keyword.value == name:
                return arg
        elif index == position and not arg.star:
            return arg
    return None


def has_unpacking(call: cst.Call) -> bool:
    """Whether `*args` or `**kwargs` may hand the call more than can be read."""
    return any(arg.star for arg in call.args)


def add_argument(unit: Unit, call: cst.Call, text: str) -> Edit | None:
    """Append the argument `text`, such as `device=x.device`, to a call."""
    end = unit.offsets(call)[1]
    if not call.args:
        inner_start = unit.offsets(call.func)[1]
        inner = unit.source.text[inner_start : end - 1]
        if "#" in inner or unit.source.text[end - 1 : end] != ")":
            return None
        return Edit(end - 1, end - 1, text)
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        return None
    at = _argument_end(unit, last)
    return Edit(at, at, ", " + text)


def prepend_argument(unit: Unit, call: cst.Call, text: str) -> Edit | None:
    """Put the positional argument `text` before all others of a call."""
    if not call.args:
        return add_argument(unit, call, text)
    if isinstance(call.args[0].value, cst.GeneratorExp) and not call.args[0].value.lpar:
        return None
    at = _argument_start(unit, call.args[0])
    return Edit(at, at, text + ", ")


def remove_argument(unit: Unit, call: cst.Call, arg: cst.Arg) -> Edit | None:
    """Take one argument out of a call, with the comma that goes with it."""
    index = call.args.index(arg)
    text = unit.source.text
    if index + 1 < len(call.args):
        start, end = _argument_start(unit, arg), _argument_start(unit, call.args[index + 1])
    elif index > 0:
        start, end = _argument_end(unit, call.args[index - 1]), _argument_end(unit, arg)
    else:
        start, end = _argument_start(unit, arg), _argument_end(unit, arg)
        if isinstance(arg.comma, cst.Comma):
            end = text.index(",", end) + 1
    return None if "#" in text[start:end] else Edit(start, end, "")


def _argument_start(unit: Unit, arg: cst.Arg) -> int:
    return unit.offsets(arg)[0]


def _argument_end(unit: Unit, arg: cst.Arg) -> int:
    end = unit.offsets(arg.value)[1]
    text = unit.source.text
    for _ in getattr(arg.value, "rpar", ()):
        end = text.index(")", end) + 1
    return end


def statement_of(unit: Unit, node: cst.CSTNode) -> cst.BaseStatement | cst.BaseSmallStatement | None:
    """The innermost statement that holds `node`: a small statement, or a compound one whose header holds it."""
    at: cst.CSTNode | None = node
    while at is not None and not isinstance(at, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
        at = unit.parents.get(at)
    return at


def insert_before(unit: Unit, statement: cst.CSTNode, text: str) -> Edit | None:
    """Put the statement `text` (one line, no indentation) before a statement, in its block."""
    line, indent = _line_of(unit, statement)
    if indent is None:
        start, _ = unit.offsets(statement)
        compound = isinstance(statement, cst.BaseCompoundStatement)
        return None if compound or "\n" in text else Edit(start, start, text + "; ")
    at = unit.source.offset(line, 0)
    newline = unit.source.newline
    return Edit(at, at, "".join(indent + part + newline for part in text.split("\n")))


def insert_after(unit: Unit, statement: cst.CSTNode, text: str) -> Edit | None:
    """Put the statement `text` (one line, no indentation) after a statement, in its block."""
    source = unit.source
    _, indent = _line_of(unit, statement)
    siblings = _siblings(unit, statement)
    if indent is None or (siblings and siblings[-1] is not statement and _same_line(unit, statement, siblings)):
        _, end = unit.offsets(statement)
        compound = isinstance(statement, cst.BaseCompoundStatement)
        return None if compound or "\n" in text else Edit(end, end, "; " + text)
    last = unit.span(statement).end_line
    newline = source.newline
    body = "".join(indent + part + newline for part in text.split("\n"))
    if last < len(source.line_starts):
        at = source.line_starts[last]
        return Edit(at, at, body)
    return Edit(len(source.text), len(source.text), newline + body.rstrip("\r\n"))


def delete_statement(unit: Unit, statement: cst.BaseSmallStatement) -> Edit | None:
    """Take a small statement out; `pass` takes its place where it is its block's only one, and a comment stays."""
    source = unit.source
    start, end = unit.offsets(statement)
    line = unit.parents.get(statement)
    siblings = list(line.body) if isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite)) else []
    if len(siblings) > 1:
        index = siblings.index(statement)
        if index + 1 < len(siblings):
            return Edit(start, unit.offsets(siblings[index + 1])[0], "")
        return Edit(unit.offsets(siblings[index - 1])[1], end, "")
    block = unit.parents.get(line) if line is not None else None
    alone = isinstance(line, cst.SimpleStatementSuite) or (
        isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    )
    if alone or block is None:
        return Edit(start, end, "pass")
    first = source.place(start)[0]
    last = unit.span(statement).end_line
    comment = source.text.find("#", end, end + len(source.line(last)) - unit.span(statement).end_column)
    if comment >= 0:
        return Edit(start, comment, "")
    stop = source.line_starts[last] if last < len(source.line_starts) else len(source.text)
    return Edit(source.line_starts[first - 1], stop, "")


def _siblings(unit: Unit, statement: cst.CSTNode) -> list[cst.CSTNode]:
    above = unit.parents.get(statement)
    return list(above.body) if isinstance(above, (cst.SimpleStatementLine, cst.SimpleStatementSuite)) else []


def _same_line(unit: Unit, statement: cst.CSTNode, siblings: list[cst.CSTNode]) -> bool:
    following = siblings[siblings.index(statement) + 1]
    return unit.span(following).line == unit.span(statement).end_line


def _line_of(unit: Unit, statement: cst.CSTNode) -> tuple[int, str | None]:
    """The first line of a statement and its indentation; None where other code stands before it on that line."""
    above = unit.parents.get(statement)
    if isinstance(above, cst.SimpleStatementLine) and above.body[0] is statement:
        statement = above
    first: cst.CSTNode = statement
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and statement.decorators:
        first = statement.decorators[0]
    span = unit.span(first)
    indent = unit.source.line(span.line)[: span.column]
    return span.line, indent if not indent.strip() else None
