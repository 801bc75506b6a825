"""JUnit's XML, which most CI services show: a suite for each file, a failure for each finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from devlint.findings import FileResult, Finding
from devlint.report.look import Look, relative

# What XML 1.0 cannot hold in any form.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Sequence[FileResult], look: Look) -> str:
    """One `testsuites` element; a run without findings has one passed test, for an empty report reads as a failure."""
    shown = [result for result in results if result.findings]
    count = sum(len(result.findings) for result in shown)
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    lines.append(f'<testsuites name="devlint" tests="{max(count, 1)}" failures="{count}" errors="0">')
    if not shown:
        lines.append('  <testsuite name="devlint" tests="1" failures="0" errors="0">')
        lines += ['    <testcase name="no findings" classname="devlint"/>', "  </testsuite>"]
    for result in shown:
        tests = len(result.findings)
        name = _attribute(relative(result.path))
        lines.append(f'  <testsuite name={name} tests="{tests}" failures="{tests}" errors="0">')
        for finding in result.findings:
            lines += _case(finding, name)
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _case(finding: Finding, name: str) -> list[str]:
    span = finding.span
    title = _attribute(f"{finding.code} {finding.name} ({span.line}:{span.column + 1})")
    evidence = "".join(f"\nline {step.span.line}: {step.message}" for step in finding.evidence)
    text = _text(f"line {span.line}, column {span.column + 1}: {finding.message}{evidence}")
    return [
        f'    <testcase name={title} classname={name} file={name} line="{span.line}">',
        f"      <failure message={_attribute(finding.message)}>{text}</failure>",
        "    </testcase>",
    ]


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", text))
