"""The findings by file."""

from __future__ import annotations

from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.look import Look


def render(results: Sequence[FileResult], look: Look) -> str:
    """Each file's name, and its findings below it."""
    blocks = []
    for result in results:
        if not result.findings:
            continue
        places = [f"{finding.span.line}:{finding.span.column + 1}" for finding in result.findings]
        width = max(map(len, places))
        lines = [look.paint("bold", result.path) + ":"]
        lines += [
            f"  {where:<{width}}  {look.code(finding)} {look.mark(finding)}{finding.message}"
            for where, finding in zip(places, result.findings, strict=True)
        ]
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks)
