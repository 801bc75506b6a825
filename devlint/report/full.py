"""The finding in its code: a frame with carets, a frame for each step of the proof, and the way out."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from devlint.findings import FileResult, Finding, Span
from devlint.report.look import Look, place
from devlint.source import Source

_TAB = 4
_CONTEXT = 1
_LONGEST = 160


def render(results: Sequence[FileResult], look: Look) -> str:
    """Each finding with its frames, an empty line after it."""
    return "".join(
        "".join(line.rstrip() + "\n" for line in _lines(finding, result.source, look)) + "\n"
        for result in results
        for finding in result.findings
    )


def _lines(finding: Finding, source: Source | None, look: Look) -> Iterator[str]:
    message = look.paint("bold", finding.message)
    yield f"{look.code(finding)} {finding.name} {look.mark(finding)}{message}"
    arrow = look.paint("blue", "-->")
    lasts = [finding.span.end_line + _CONTEXT, *(step.span.line for step in finding.evidence)]
    width = len(str(max(lasts)))
    gutter = " " * width + " " + look.paint("blue", "|")
    yield f"{' ' * width}{arrow} {place(finding)}"
    if source is not None:
        yield gutter
        yield from _frame(source, finding.span, width, look, "^", "red", _CONTEXT)
    for step in finding.evidence:
        yield gutter
        yield f"{' ' * width} {look.paint('blue', '=')} {look.paint('bold', 'because')}: {step.message}"
        if source is not None:
            yield from _frame(source, step.span, width, look, "-", "blue", 0)
    help = list(_help(finding, look))
    if help:
        yield gutter
    for text in help:
        yield f"{' ' * width} {look.paint('blue', '=')} {text}"


def _help(finding: Finding, look: Look) -> Iterator[str]:
    if finding.help:
        yield f"{look.paint('green', 'help')}: {finding.help}"
    if finding.fix is not None:
        how = {
            "safe": "--fix does it",
            "unsafe": "--fix --unsafe-fixes does it",
            "display": "to be done by hand",
        }[finding.fix.applicability]
        yield f"{look.paint('green', 'fix')}: {' '.join(finding.fix.message.split())} ({how})"


def _frame(source: Source, span: Span, width: int, look: Look, sign: str, style: str, context: int) -> Iterator[str]:
    """The lines of `span`, its first one underlined, with `context` lines before and after that are not blank."""
    bar = look.paint("blue", "|")
    count = len(source.line_starts)
    for number in range(max(span.line - context, 1), min(span.line + context, count) + 1):
        text = source.line(number)
        if number != span.line and not text.strip():
            continue
        shown, columns = _expand(text)
        yield f"{look.paint('blue', f'{number:>{width}}')} {bar} {shown[:_LONGEST]}"
        if number == span.line:
            end = span.end_column if span.end_line == span.line else len(text.rstrip())
            last = len(columns) - 1
            start_at, end_at = columns[min(span.column, last)], columns[min(max(end, 0), last)]
            if start_at < _LONGEST:
                marks = sign * max(min(end_at, _LONGEST) - start_at, 1)
                yield f"{' ' * width} {bar} {' ' * start_at}{look.paint(style, marks)}"


def _expand(text: str) -> tuple[str, list[int]]:
    """The line as it is shown, without tabs and control characters, and the screen column of each character's start."""
    shown: list[str] = []
    columns: list[int] = []
    at = 0
    for character in text:
        columns.append(at)
        if character == "\t":
            character = " " * (_TAB - at % _TAB)
            wide = len(character)
        elif unicodedata.combining(character):
            wide = 0
        elif ord(character) < 32 or ord(character) == 127:
            character, wide = " ", 1
        else:
            wide = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        shown.append(character)
        at += wide
    columns.append(at)
    return "".join(shown), columns
