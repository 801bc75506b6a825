"""One line a finding: `path:line:column: CODE [*] message`."""

from __future__ import annotations

from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.look import Look, place


def render(results: Sequence[FileResult], look: Look) -> str:
    """The findings, one a line."""
    return "".join(
        f"{look.paint('bold', place(finding))}: {look.code(finding)} {look.mark(finding)}{finding.message}\n"
        for result in results
        for finding in result.findings
    )
