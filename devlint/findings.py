"""What devlint has to say about a file: findings, their evidence, and the edits that mend them.

Lines are 1-based and columns 0-based, in characters, as LibCST and flake8 count them; an end is exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from devlint.source import Source

Applicability = Literal["safe", "unsafe", "display"]


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of a file, from (line, column) up to but not including (end_line, end_column)."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Edit:
    """Replace the text between two character offsets of the file by `content`."""

    start: int
    end: int
    content: str


@dataclass(frozen=True)
class Fix:
    """Edits that belong together: all of them are applied, or none.

    `needs` are modules that the new text refers to by their dotted name and that must be imported;
    `obsoletes` are local names whose import may go once nothing else uses them.
    """

    message: str
    edits: tuple[Edit, ...]
    applicability: Applicability = "safe"
    needs: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One step of the proof behind a finding."""

    message: str
    span: Span


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, where, why, and what to do about it.

    `noqa_line` is the line whose `# noqa` comment silences the finding, `cell` the 1-based number of the notebook
    cell that it is in, and `help` a sentence that says the way out where there is no fix.
    """

    code: str
    name: str
    message: str
    span: Span
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    help: str = ""
    path: str = ""
    cell: int | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Findings are reported by file, place, code and text."""
        return (self.path, self.span.line, self.span.column, self.code, self.message)


@dataclass(frozen=True)
class FileResult:
    """All that a run found out about one file.

    `errors` tell what could not be done: the file not read, a fix not applied or not written. `source` is what the
    findings' places refer to, where there are any; `fixed` are the findings whose fixes were applied, `diff` is what
    they change where nothing was to be written.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    errors: tuple[str, ...] = ()
    fixed: tuple[Finding, ...] = ()
    source: Source | None = None
    diff: str = ""
