"""The reports: one module a format, each with `render(results, look) -> str`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.look import Look

TEXT_FORMATS = frozenset({"full", "concise", "grouped"})
"""Formats for the eyes; they end with a summary."""


def render(format: str, results: Sequence[FileResult], look: Look) -> str:
    """The report of `results` in one of `devlint.options.FORMATS`; empty, or ending with a newline."""
    module = importlib.import_module(f"devlint.report.{format}")
    text: str = module.render(results, look)
    if format in TEXT_FORMATS:
        text += summary(results, look)
    return text


def summary(results: Sequence[FileResult], look: Look) -> str:
    """How many findings there are and what can be done about them, in one or two lines."""
    findings = [finding for result in results for finding in result.findings]
    fixed = sum(len(result.fixed) for result in results)
    if not findings and not fixed:
        return "All checks passed.\n" if not any(result.errors for result in results) else ""
    total = len(findings) + fixed
    head = f"Found {total} {'finding' if total == 1 else 'findings'}"
    if fixed:
        head += f" ({fixed} fixed, {len(findings)} remaining)"
    lines = [head + "."]
    safe = sum(1 for finding in findings if finding.fix and finding.fix.applicability == "safe")
    unsafe = sum(1 for finding in findings if finding.fix and finding.fix.applicability == "unsafe")
    if look.unsafe_fixes:
        safe, unsafe = safe + unsafe, 0
    options = "--fix --unsafe-fixes" if look.unsafe_fixes else "--fix"
    if safe:
        lines.append(
            f"[*] {safe} fixable with `{options}`" + (f" ({unsafe} more with `--unsafe-fixes`)." if unsafe else ".")
        )
    elif unsafe:
        lines.append(f"{unsafe} fixable with `--fix --unsafe-fixes`.")
    return "\n".join(lines) + "\n"
