"""The rule page test, for our own pages and for those of third parties.

A page's `bad` fences must be reported exactly where `# error: CODE` stands, its `good` fences not at all; a `fixed`
fence is what `--fix --unsafe-fixes` makes of the `bad` fence before it.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator

from devlint import suppress
from devlint.checks import default_codes
from devlint.engine import check_source
from devlint.findings import Finding
from devlint.fixes import FixResult, fix_source
from devlint.pages import Fence, Page
from devlint.settings import Settings
from devlint.source import Source


def page_settings(page: Page) -> Settings:
    """The rules that a page is tested under: the default ones and its own."""
    return Settings(default_codes() | {page.code})


def findings(code: str, settings: Settings) -> list[Finding]:
    """What devlint reports on `code`, suppressed findings left out."""
    source = Source.from_text(code, "case.py")
    return suppress.apply(source, check_source(source, settings))


def fixed(code: str, settings: Settings) -> FixResult:
    """What `--fix --unsafe-fixes` makes of `code`."""
    source = Source.from_text(code, "case.py")
    return fix_source(source, lambda source: findings(source.text, settings), unsafe=True)


def spellings(code: str) -> Iterator[tuple[str, str]]:
    """`code` as it stands, with `import torch as t`, and with `from torch import …`, where that can be written."""
    yield "as written", code
    if len(re.findall(r"^import torch$", code, re.M)) != 1 or re.search(r"\bimport torch\.", code):
        return
    body = re.sub(r"^(?:from|import) .*$", "", code, flags=re.M)
    if not re.search(r"\bt\b", body):
        renamed = re.sub(r"(?<![\w.'\"])torch\.(?=\w)", "t.", _outside_imports(code))
        yield "import torch as t", _restore(renamed, code).replace("import torch\n", "import torch as t\n", 1)
    members = sorted(set(re.findall(r"(?<![\w.'\"])torch\.(\w+)", body)))
    if members and not any(re.search(rf"(?<!torch\.)\b{member}\b", code) for member in members):
        shortened = re.sub(r"(?<![\w.'\"])torch\.(?=\w)", "", _outside_imports(code))
        imported = f"from torch import {', '.join(members)}\n"
        yield "from torch import", _restore(shortened, code).replace("import torch\n", imported, 1)


def _outside_imports(code: str) -> str:
    return "\n".join("" if re.match(r"\s*(from|import) ", line) else line for line in code.split("\n"))


def _restore(changed: str, code: str) -> str:
    pairs = zip(changed.split("\n"), code.split("\n"), strict=True)
    return "\n".join(old if re.match(r"\s*(from|import) ", old) else new for new, old in pairs)


def problems(page: Page, fence: Fence, following: Fence | None) -> Iterator[str]:
    """What is wrong with one fence of a page, the next fence given: nothing for a page that tells the truth."""
    if fence.kind == "fixed":
        return
    settings = page_settings(page)
    ast.parse(fence.code)
    for spelling, code in spellings(fence.code):
        found = sorted((finding.span.line, finding.code) for finding in findings(code, settings))
        if found != sorted(fence.expected):
            yield f"{spelling}: expected {sorted(fence.expected)}, found {found}\n{code}"
    if fence.kind == "good":
        return
    if not any(code == page.code for _, code in fence.expected):
        yield f"a bad fence without `# error: {page.code}`"
    lines = fence.code.split("\n")
    for number, code in fence.expected:
        lines[number - 1] += f"  # noqa: {code}" if "# noqa" not in lines[number - 1] else f",{code}"
    left = findings("\n".join(lines), settings)
    if left:
        yield f"not silenced by # noqa: {left}"
    yield from _fix_problems(fence, following, settings)


def _fix_problems(fence: Fence, following: Fence | None, settings: Settings) -> Iterator[str]:
    result = fixed(fence.code, settings)
    yield from result.errors
    ast.parse(result.text)
    again = fixed(result.text, settings)
    if again.text != result.text:
        yield f"a second fix changes the result:\n{_diff(result.text, again.text)}"
    if following is None or following.kind != "fixed":
        if result.text != fence.code:
            yield f"the fix has no `fixed` fence:\n{_diff(fence.code, result.text)}"
        return
    if result.text != following.code:
        yield f"the fix differs from the `fixed` fence:\n{_diff(following.code, result.text)}"
    expected_left = {code for _, code in following.expected}
    left = {finding.code for finding in result.remaining}
    if left != expected_left:
        yield f"the fixed code is still reported: {left}"


def _diff(expected: str, found: str) -> str:
    return "".join(difflib.unified_diff(expected.splitlines(True), found.splitlines(True), "expected", "found"))


def accepted(page: Page) -> str:
    """The page's text with its markers and `fixed` fences as devlint has them now, for review by eye."""
    settings = page_settings(page)
    text, fences = page.text, page.fences()
    for index in range(len(fences) - 1, -1, -1):
        fence = fences[index]
        if fence.kind == "bad":
            repaired = fixed(fence.code, settings).text
            alone = index + 1 == len(fences) or fences[index + 1].kind != "fixed"
            missing = (
                f"```\n\n```python fixed\n{_marked(repaired, settings)}" if alone and repaired != fence.code else ""
            )
            text = text[: fence.start] + _marked(fence.code, settings) + missing + text[fence.end :]
        elif fence.kind == "fixed" and index and fences[index - 1].kind == "bad":
            repaired = fixed(fences[index - 1].code, settings).text
            text = text[: fence.start] + _marked(repaired, settings) + text[fence.end :]
    return text


def _marked(code: str, settings: Settings) -> str:
    """The code with each line that is reported marked so."""
    lines = code.split("\n")
    reported = findings(code, settings)
    for number in sorted({finding.span.line for finding in reported}):
        lines[number - 1] += (
            f"  # error: {', '.join(finding.code for finding in reported if finding.span.line == number)}"
        )
    return "\n".join(lines)
