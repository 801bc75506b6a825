"""The one way through the house: a source in, its findings out.

bytes -> Source -> gate (is there torch, does it parse) -> units -> checks, driven in one walk -> findings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from devlint.checks import checks
from devlint.checks.base import Check, File
from devlint.findings import Finding, Span
from devlint.lazycst import cst
from devlint.semantics.imports import Names
from devlint.settings import Settings
from devlint.source import Source, SourceError
from devlint.units import Unit, UnitTooDeep, split_units

INTERNAL_ERROR = ("TDL900", "internal-error")
NOT_PARSED = ("TDL902", "not-parsed")

_Visitor = Callable[[Any], None]


def check_bytes(path: str, data: bytes, settings: Settings) -> tuple[Source | None, list[Finding]]:
    """The findings of a file given as bytes, before suppression, and its source where it could be decoded."""
    if b"torch" not in data and not _wide(data):
        return None, []
    try:
        source = Source(path, data)
    except SourceError as error:
        return None, [_not_parsed(path, str(error), error.line)]
    return source, check_source(source, settings)


def _wide(data: bytes) -> bool:
    """Whether the bytes may spell `torch` otherwise than in ASCII, or are no Python text at all."""
    return b"\0" in data


def check_source(source: Source, settings: Settings, tree: ast.Module | None = None) -> list[Finding]:
    """The findings of a source, before suppression, in order; `tree` spares parsing it anew.

    A file that does not parse gives TDL902 at the place of the error; a rule that fails gives TDL900.
    """
    if "torch" not in source.text:
        return []
    if tree is None:
        try:
            tree = parse(source)
        except SyntaxError as error:
            return [_syntax_error(source, error)]
    units = split_units(source, tree)
    if not units:
        return []
    file = File(source, Names(tree), units, settings)
    findings: list[Finding] = []
    active = [check for check in checks() if any(rule.code in settings.enabled for rule in check.rules)]
    wanted = [(unit, [check for check in active if check.wants(unit, file.names)]) for unit in units]
    instances: dict[type[Check], Check] = {}
    for unit, kinds in wanted:
        if not kinds:
            continue
        try:
            _ = unit.module
        except UnitTooDeep as error:
            findings.append(_not_parsed(source.path, str(error), error.line))
            continue
        for kind in kinds:
            if kind not in instances:
                instances[kind] = kind(file)
        running = [instances[kind] for kind in kinds]
        _drive(unit, running, lambda check, error: findings.append(_internal_error(source, check, error)))
    for check in instances.values():
        _guarded(check, check.finish, findings, source)
        findings += check.findings
    return sorted(set(findings), key=lambda finding: finding.sort_key)


def parse(source: Source) -> ast.Module:
    """The file's `ast`. Raises SyntaxError, also for what exhausts the parser."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source.text, source.path)
        except (RecursionError, MemoryError):
            raise SyntaxError("too deeply nested to be parsed") from None
        except ValueError as error:
            raise SyntaxError(str(error)) from None


def _drive(unit: Unit, running: list[Check], failed: Callable[[Check, Exception], None]) -> None:
    """Walk `unit` once, calling the visitors of all `running` checks; a check that fails is dropped and reported."""
    before: dict[str, list[tuple[Check, _Visitor]]] = {}
    after: dict[str, list[tuple[Check, _Visitor]]] = {}
    for check in running:
        check.unit = unit
        for attribute in _visitors(type(check)):
            table = before if attribute.startswith("visit_") else after
            table.setdefault(attribute.partition("_")[2], []).append((check, getattr(check, attribute)))
    dropped: set[Check] = set()

    def call(visitors: Iterable[tuple[Check, _Visitor]], node: cst.CSTNode) -> None:
        for check, visitor in visitors:
            if check not in dropped:
                try:
                    visitor(node)
                except UnitTooDeep:
                    dropped.add(check)
                except Exception as error:
                    dropped.add(check)
                    failed(check, error)

    open_nodes: list[tuple[int, cst.CSTNode]] = []
    for index, node in enumerate(unit.nodes):
        while open_nodes and open_nodes[-1][0] <= index:
            left = open_nodes.pop()[1]
            call(after[type(left).__name__], left)
        kind = type(node).__name__
        if kind in before:
            call(before[kind], node)
        if kind in after:
            open_nodes.append((unit.end_of(node), node))
    while open_nodes:
        left = open_nodes.pop()[1]
        call(after[type(left).__name__], left)
    for check in running:
        if check not in dropped:
            try:
                check.finish_unit()
            except UnitTooDeep:
                pass
            except Exception as error:
                failed(check, error)


_visitor_names: dict[type[Check], tuple[str, ...]] = {}


def _visitors(kind: type[Check]) -> tuple[str, ...]:
    names = _visitor_names.get(kind)
    if names is None:
        names = _visitor_names[kind] = tuple(name for name in dir(kind) if re.match(r"(visit|leave)_[A-Z]", name))
    return names


def _guarded(check: Check, finish: Callable[[], None], findings: list[Finding], source: Source) -> None:
    try:
        finish()
    except UnitTooDeep:
        pass
    except Exception as error:
        findings.append(_internal_error(source, check, error))


def _internal_error(source: Source, check: Check, error: Exception) -> Finding:
    codes = ", ".join(rule.code for rule in check.rules)
    message = (
        f"{codes} failed on this file with {type(error).__name__}: {error}; the other rules were run. "
        "Please report it with the file, or silence it with --ignore " + check.rules[0].code
    )
    return Finding(*INTERNAL_ERROR, message, Span(1, 0, 1, 1), path=source.path)


def _not_parsed(path: str, message: str, line: int, column: int = 0) -> Finding:
    return Finding(*NOT_PARSED, message, Span(line, column, line, column + 1), path=path)


def _syntax_error(source: Source, error: SyntaxError) -> Finding:
    line = min(max(error.lineno or 1, 1), len(source.line_starts))
    column = max((error.offset or 1) - 1, 0)
    return _not_parsed(source.path, f"syntax error: {error.msg}", line, min(column, len(source.line(line))))
