"""The rule pages: found beside the package (in a wheel) or beside the checkout, read by code or slug."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

FAMILIES = {
    "1": "placement",
    "2": "transfer",
    "3": "loading",
    "4": "amp",
    "5": "deprecated",
    "6": "module_state",
    "7": "portability",
}
"""The hundreds digit of a code, and the folder that its page and its module are in."""

_FENCE = re.compile(r"^```python (bad|good|fixed)\b([^\n]*)\n(.*?)^```$", re.M | re.S)
_MARKER = re.compile(r"[ \t]*# error: (TDL\d{3}(?:, ?TDL\d{3})*)[ \t]*$")


class UnknownRule(Exception):
    """No rule has that code or name; the message names the nearest ones."""


@dataclass(frozen=True)
class Fence:
    """One case of a page: its kind, its code without markers, and the (line, code) pairs that are to be reported.

    ``` ```python bad run show(torch.ones(3), device)``` asks that the case be executed, too: `call` holds the
    statements after `run`, with `; ` between them, which use the case's names.
    """

    kind: str
    code: str
    expected: tuple[tuple[int, str], ...]
    call: str
    start: int
    end: int
    line: int


@dataclass(frozen=True)
class Page:
    """One rule's page and its cases, in order."""

    code: str
    name: str
    path: Path
    text: str

    def fences(self) -> list[Fence]:
        """The page's `bad`, `good` and `fixed` fences."""
        found = []
        for match in _FENCE.finditer(self.text):
            lines, expected = [], []
            for number, line in enumerate(match[3].split("\n"), 1):
                marker = _MARKER.search(line)
                if marker:
                    expected += [(number, code.strip()) for code in marker[1].split(",")]
                    line = line[: marker.start()]
                lines.append(line)
            line_number = self.text.count("\n", 0, match.start()) + 1
            word, _, call = match[2].strip().partition(" ")
            code = "\n".join(lines)
            found.append(
                Fence(match[1], code, tuple(expected), call if word == "run" else "", *match.span(3), line_number)
            )
        return found


def pages_folder() -> Path:
    """The folder that holds the pages."""
    package = Path(__file__).resolve().parent
    shipped = package / "rules"
    return shipped if shipped.is_dir() else package.parent / "rules"


def pages() -> list[Page]:
    """Every rule's page, by code."""
    return [read_page(path) for path in sorted(pages_folder().glob("*/TDL*.md"), key=lambda path: path.name)]


def read_page(path: Path) -> Page:
    """The page in file `path`, whose name gives the rule's code and name."""
    code, _, name = path.stem.partition("-")
    return Page(code, name, path, path.read_text(encoding="utf-8"))


def find_page(wanted: str) -> Page:
    """The page of a rule given by code or name, in any case. Raises UnknownRule."""
    every = pages()
    for page in every:
        if wanted.lower() in (page.code.lower(), page.name.lower(), page.path.stem.lower()):
            return page
    names = [name for page in every for name in (page.code, page.name)]
    near = difflib.get_close_matches(wanted, names, 3) or difflib.get_close_matches(wanted.upper(), names, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `devlint rule --all` lists them"
    raise UnknownRule(f"no rule is called {wanted!r}{hint}")
