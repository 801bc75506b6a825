"""What the formats share: colours, places, and where a rule's page is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from devlint.findings import Finding

_PAGES = "https://github.com/devlint/devlint/blob/main/rules"
_STYLES = {"bold": "1", "red": "1;31", "yellow": "1;33", "blue": "1;34", "cyan": "36", "green": "32", "dim": "2"}


@dataclass(frozen=True)
class Look:
    """How a report is to look: with `colour`, and with unsafe fixes counted among those that can be applied."""

    colour: bool = False
    unsafe_fixes: bool = False

    def paint(self, style: str, text: str) -> str:
        """`text` in one of the styles, where there is colour."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text else text

    def code(self, finding: Finding) -> str:
        """The finding's code, which a terminal that can will link to the rule's page."""
        painted = self.paint("red", finding.code)
        url = rule_url(finding.code)
        return f"\x1b]8;;{url}\x1b\\{painted}\x1b]8;;\x1b\\" if self.colour and url else painted

    def mark(self, finding: Finding) -> str:
        """`[*] ` where `--fix` mends the finding."""
        return self.paint("cyan", "[*]") + " " if fixable(finding, self.unsafe_fixes) else ""


def fixable(finding: Finding, unsafe: bool) -> bool:
    """Whether `--fix`, with `--unsafe-fixes` where `unsafe`, mends the finding."""
    return finding.fix is not None and finding.fix.applicability in (("safe", "unsafe") if unsafe else ("safe",))


def place(finding: Finding) -> str:
    """`path:line:column`, 1-based."""
    return f"{finding.path}:{finding.span.line}:{finding.span.column + 1}"


@cache
def rule_url(code: str) -> str:
    """The address of a rule's page; empty for the codes about devlint itself."""
    from devlint.checks import rules
    from devlint.pages import FAMILIES

    rule = rules().get(code)
    family = FAMILIES.get(code[3:4])
    return f"{_PAGES}/{family}/{code}-{rule.name}.md" if rule and family else ""


def relative(path: str) -> str:
    """`path` relative to the working directory, with slashes, where it is below it."""
    try:
        shorter = os.path.relpath(path)
    except ValueError:
        shorter = path
    return (path if shorter.startswith(os.pardir) else shorter).replace(os.sep, "/")
