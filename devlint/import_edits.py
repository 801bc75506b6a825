"""Imports that a round of fixes made necessary or superfluous, mended in the fixed text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from devlint.findings import Edit
from devlint.source import Source


def mend_imports(text: str, path: str, needs: Iterable[str], obsoletes: Iterable[str]) -> str:
    """`text` with an import for each of `needs` and without the imports of `obsoletes` that nothing uses.

    A need is a module (`torch`) or a member of one (`devlint.runtime:to_device`).
    """
    for need in sorted(set(needs)):
        text = _with_import(text, path, need)
    for name in sorted(set(obsoletes)):
        text = _without_import(text, path, name)
    return text


def _with_import(text: str, path: str, need: str) -> str:
    module, _, member = need.partition(":")
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.Import) and not member:
            if any(alias.asname is None and alias.name.partition(".")[0] == module for alias in node.names):
                return text
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module == module
            and any(alias.name == member and alias.asname is None for alias in node.names)
        ):
            return text
    source = Source.from_text(text, path)
    statement = f"from {module} import {member}" if member else f"import {module}"
    return source.apply([_insertion(source, tree, statement, module.partition(".")[0])])


def _insertion(source: Source, tree: ast.Module, statement: str, root: str) -> Edit:
    """Where a new import goes: before the first import of the same package, else after the leading imports."""
    after = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and after == 0
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        imports = isinstance(node, (ast.Import, ast.ImportFrom))
        if not (docstring or imports):
            break
        if imports and not future and root in _roots(node) and not _shares_line(source, node):
            at = source.line_starts[node.lineno - 1]
            return Edit(at, at, statement + source.newline)
        after = node.end_lineno or node.lineno
    if after >= len(source.line_starts):
        return Edit(len(source.text), len(source.text), source.newline + statement)
    at = source.line_starts[after] if after else _first_code(source, tree)
    return Edit(at, at, statement + source.newline)


def _roots(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def _shares_line(source: Source, node: ast.stmt) -> bool:
    return bool(source.line(node.lineno)[: node.col_offset].strip())


def _first_code(source: Source, tree: ast.Module) -> int:
    return source.line_starts[tree.body[0].lineno - 1] if tree.body else 0


def _without_import(text: str, path: str, name: str) -> str:
    """`text` without the imports of the local name `name`; unchanged where the name may still be wanted."""
    if PurePath(path).name == "__init__.py":
        return text
    source = Source.from_text(text, path)
    edits: list[Edit] = []
    for statement, only in _import_statements(ast.parse(text).body):
        for index, alias in enumerate(statement.names):
            if (alias.asname or alias.name) != name:
                continue
            edit = _removal(source, statement, index, only)
            if edit is None:
                return text
            edits.append(edit)
    return text if not edits or _is_used(ast.parse(text), name) else source.apply(edits)


def _is_used(tree: ast.Module, name: str) -> bool:
    """Whether anything but an import mentions `name`: code, a quoted annotation, or `__all__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            return True
        if isinstance(node, (ast.arg, ast.AnnAssign)) and _quotes(node.annotation, name):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _quotes(node.returns, name):
            return True
        if isinstance(node, (ast.Assign, ast.AugAssign)) and "__all__" in ast.dump(node) and _quotes(node.value, name):
            return True
    return False


def _quotes(node: ast.expr | None, name: str) -> bool:
    """Whether a string below `node` holds `name` as a word."""
    return node is not None and any(
        isinstance(inner, ast.Constant) and isinstance(inner.value, str) and re.search(rf"\b{name}\b", inner.value)
        for inner in ast.walk(node)
    )


def _import_statements(body: list[ast.stmt]) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement, and whether it is the only statement of its block."""
    pending: list[tuple[list[ast.stmt], bool]] = [(body, True)]
    while pending:
        block, top = pending.pop()
        for statement in block:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                yield statement, len(block) == 1 and not top
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if isinstance(inner, list):
                    pending.append((inner, False))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                pending.append((part.body, False))


def _start(source: Source, node: ast.stmt | ast.alias) -> int:
    return source.offset_utf8(node.lineno, node.col_offset)


def _end(source: Source, node: ast.stmt | ast.alias) -> int:
    return source.offset_utf8(node.end_lineno or node.lineno, node.end_col_offset or 0)


def _removal(source: Source, statement: ast.Import | ast.ImportFrom, index: int, only: bool) -> Edit | None:
    """The edit that takes one alias out of an import, or the whole statement with its last alias."""
    names = statement.names
    start, end = _start(source, statement), _end(source, statement)
    if len(names) > 1:
        if index + 1 < len(names):
            cut = (_start(source, names[index]), _start(source, names[index + 1]))
        else:
            cut = (_end(source, names[index - 1]), _end(source, names[index]))
        return None if "#" in source.text[slice(*cut)] else Edit(*cut, "")
    first, last = source.place(start)[0], source.place(end)[0]
    before = source.line(first)[: source.place(start)[1]]
    after = source.line(last)[source.place(end)[1] :].strip()
    if only or before.strip() or (after and not after.startswith("#")) or "noqa" in after:
        return None
    stop = source.line_starts[last] if last < len(source.line_starts) else len(source.text)
    return Edit(source.line_starts[first - 1], stop, "")
