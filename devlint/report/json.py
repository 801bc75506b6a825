"""The shape of `ruff check --output-format json`, with the proof of each finding as `evidence`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from devlint.findings import FileResult, Finding, Span
from devlint.report.look import Look, rule_url
from devlint.source import Source


def render(results: Sequence[FileResult], look: Look) -> str:
    """One list of all findings."""
    return json.dumps(list(rows(results)), indent=2, ensure_ascii=False) + "\n"


def rows(results: Sequence[FileResult]) -> Iterator[dict[str, Any]]:
    """Each finding as ruff writes it, its keys in order."""
    from devlint.suppress import logical_lines

    for result in results:
        ranges = logical_lines(result.source).noqa if result.source and result.findings else {}
        for finding in result.findings:
            line = finding.span.line
            yield {
                "cell": finding.cell,
                "code": finding.code,
                "end_location": _location(finding.span.end_line, finding.span.end_column),
                "evidence": [{"location": _start(step.span), "message": step.message} for step in finding.evidence],
                "filename": os.path.abspath(finding.path),
                "fix": _fix(finding, result.source),
                "help": finding.help or None,
                "location": _start(finding.span),
                "message": finding.message,
                "name": finding.name,
                "noqa_row": ranges.get(line, (line, line + 1))[1] - 1,
                "severity": "error",
                "url": rule_url(finding.code) or None,
            }


def _start(span: Span) -> dict[str, int]:
    return _location(span.line, span.column)


def _location(line: int, column: int) -> dict[str, int]:
    return {"column": column + 1, "row": line}


def _fix(finding: Finding, source: Source | None) -> dict[str, Any] | None:
    if finding.fix is None or source is None:
        return None
    edits = [
        {
            "content": edit.content,
            "end_location": _location(*source.place(edit.end)),
            "location": _location(*source.place(edit.start)),
        }
        for edit in finding.fix.edits
    ]
    return {"applicability": finding.fix.applicability, "edits": edits, "message": finding.fix.message}
