"""GitHub's workflow commands, which put each finding on the line of the pull request that it is about."""

from __future__ import annotations

from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.look import Look, place, relative


def render(results: Sequence[FileResult], look: Look) -> str:
    """One `::error` command a finding."""
    lines = []
    for result in results:
        for finding in result.findings:
            span = finding.span
            properties = {"title": f"devlint ({finding.code})", "file": relative(finding.path), "line": str(span.line)}
            properties["endLine"] = str(span.end_line)
            if span.line == span.end_line:
                # GitHub ignores an annotation whose columns are on different lines.
                properties |= {"col": str(span.column + 1), "endColumn": str(span.end_column + 1)}
            fields = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
            evidence = "".join(f"\n{step.message} (line {step.span.line})" for step in finding.evidence)
            text = f"{place(finding)}: {finding.code} {finding.message}{evidence}"
            lines.append(f"::error {fields}::{_data(text)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
