"""SARIF 2.1.0, which code scanning services read: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from devlint import __version__
from devlint.findings import FileResult, Finding, Span
from devlint.report.look import Look, relative, rule_url
from devlint.source import Source


def render(results: Sequence[FileResult], look: Look) -> str:
    """One run, with the rules that were found, the evidence as related locations, and the fixes."""
    from devlint.checks import rules

    known = rules()
    codes = sorted({(f.code, f.name) for result in results for f in result.findings})
    driver = {
        "name": "devlint",
        "version": __version__,
        "informationUri": "https://github.com/devlint/devlint",
        "rules": [_rule(code, name, known[code].summary if code in known else name) for code, name in codes],
    }
    index = {code: number for number, (code, _) in enumerate(codes)}
    found = [_result(f, result.source, index[f.code]) for result in results for f in result.findings]
    errors = [{"level": "error", "message": {"text": error}} for result in results for error in result.errors]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not errors, "toolExecutionNotifications": errors}],
        "results": found,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(code: str, name: str, summary: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": code, "name": name, "shortDescription": {"text": summary}}
    url = rule_url(code)
    return {**rule, "helpUri": url} if url else rule


def _result(finding: Finding, source: Source | None, rule: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": _location(finding.path, finding.span)}],
    }
    if finding.evidence:
        row["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": _location(finding.path, step.span),
                "message": {"text": step.message},
            }
            for number, step in enumerate(finding.evidence, 1)
        ]
    if finding.fix is not None and source is not None:
        replacements = [
            {"deletedRegion": _region(source.span(edit.start, edit.end)), "insertedContent": {"text": edit.content}}
            for edit in finding.fix.edits
        ]
        change = {"artifactLocation": {"uri": _uri(finding.path)}, "replacements": replacements}
        row["fixes"] = [{"description": {"text": finding.fix.message}, "artifactChanges": [change]}]
    return row


def _location(path: str, span: Span) -> dict[str, Any]:
    return {"artifactLocation": {"uri": _uri(path)}, "region": _region(span)}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column + 1,
        "endLine": span.end_line,
        "endColumn": span.end_column + 1,
    }


def _uri(path: str) -> str:
    return quote(relative(path), errors="surrogateescape")
