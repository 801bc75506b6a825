"""Suppression comments. `apply(source, findings)` is called by testing.py, the CLI and fixes; keep this signature."""

from __future__ import annotations

import re

from devlint.findings import Finding
from devlint.source import Source

_NOQA = re.compile(
    r"# noqa"
    r"(?::[\s]?(?P<codes>[A-Z][0-9]+(?:[,\s]+)?(?:[A-Z]*[0-9]+(?:[,\s]+)?)*))?",
    re.I,
)


def apply(source: Source, findings: list[Finding]) -> list[Finding]:
    """The findings that no comment of the file suppresses, in order."""
    return [finding for finding in findings if not _silenced(source.line(finding.span.line), finding.code)]


def _silenced(line: str, code: str) -> bool:
    match = re.search(r"# noqa(?::\s?(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", line, re.I)
    if not match:
        return False
    codes = match["codes"]
    return codes is None or any(code.startswith(part.upper()) for part in re.split(r"[,\s]+", codes))
