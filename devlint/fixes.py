"""Fixes applied: round after round to a fixpoint, each result parsed again, and written without a half-way state."""

from __future__ import annotations

import ast
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devlint.findings import Edit, Finding
from devlint.import_edits import mend_imports
from devlint.source import Source

MAX_ROUNDS = 20


@dataclass(frozen=True)
class FixResult:
    """The fixed text, the findings whose fix was applied, those that remain, and what went wrong with a fix."""

    text: str
    applied: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    errors: tuple[str, ...] = ()


class FileChanged(Exception):
    """The file is no longer what was read from it; nothing was written."""


def fix_source(source: Source, check: Callable[[Source], list[Finding]], *, unsafe: bool = False) -> FixResult:
    """Apply the fixes of the findings that `check` makes of `source`, to a fixpoint of at most 20 rounds.

    `check` gives the findings that are not suppressed. Only safe fixes are applied, and unsafe ones where `unsafe`
    says so. Of overlapping fixes the outermost is applied first, the others in a later round, as are those that break the
    syntax only together, such as the last of a block that all go. A fix after which the file would not parse is left out
    and named in `errors`.
    """
    applied: list[Finding] = []
    errors: list[str] = []
    broken: set[tuple[str, str]] = set()
    findings = check(source)
    for _ in range(MAX_ROUNDS):
        chosen = [f for f in _compatible(findings, unsafe) if (f.code, f.message) not in broken]
        text = _apply(source, chosen)
        if chosen and not _parses(text):
            good: list[Finding] = []
            for finding in chosen:
                if _parses(_apply(source, [*good, finding])):
                    good.append(finding)
                elif not _parses(_apply(source, [finding])):
                    broken.add((finding.code, finding.message))
                    errors.append(f"{source.path}: the fix of {finding.code} would break the syntax; it was left out")
            chosen, text = good, _apply(source, good)
        if text == source.text:
            break
        applied += chosen
        fixed = Source.from_text(text, source.path)
        fixed.bom, fixed.encoding = source.bom, source.encoding
        source, findings = fixed, check(fixed)
    return FixResult(source.text, tuple(applied), tuple(findings), tuple(errors))


def _compatible(findings: list[Finding], unsafe: bool) -> list[Finding]:
    """The findings whose fixes may be applied together, in order of their first edit, outermost first."""
    allowed = ("safe", "unsafe") if unsafe else ("safe",)
    fixable = [f for f in findings if f.fix and f.fix.edits and f.fix.applicability in allowed]
    fixable.sort(key=lambda f: (_extent(f)[0], -_extent(f)[1], f.code))
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for finding in fixable:
        assert finding.fix is not None
        new = [edit for edit in finding.fix.edits if edit not in taken]
        if not any(_overlap(edit, other) for edit in new for other in taken):
            chosen.append(finding)
            taken += new
    return chosen


def _extent(finding: Finding) -> tuple[int, int]:
    edits = finding.fix.edits if finding.fix else ()
    return min(edit.start for edit in edits), max(edit.end for edit in edits)


def _overlap(one: Edit, other: Edit) -> bool:
    """Whether two edits touch: insertions at one place do too, for their order would be a guess."""
    if one.start == one.end or other.start == other.end:
        return one.start <= other.end and other.start <= one.end
    return one.start < other.end and other.start < one.end


def _apply(source: Source, findings: list[Finding]) -> str:
    fixes = [finding.fix for finding in findings if finding.fix]
    text = source.apply(list(dict.fromkeys(edit for fix in fixes for edit in fix.edits)))
    if not fixes or not _parses(text):
        return text
    needs = [need for fix in fixes for need in fix.needs]
    return mend_imports(text, source.path, needs, [name for fix in fixes for name in fix.obsoletes])


def _parses(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def write_atomically(path: str | Path, data: bytes, expected: bytes) -> None:
    """Replace the content of `path`, links resolved and mode kept, by `data` in one step.

    Raises FileChanged where the file no longer holds `expected`, and OSError where it cannot be written; in both
    cases the file is as it was.
    """
    target = Path(path).resolve()
    if target.read_bytes() != expected:
        raise FileChanged(f"{path}: changed while devlint was working on it; nothing was written")
    if not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".devlint")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
