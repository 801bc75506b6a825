"""`--add-noqa`: a comment for each finding, for a project that takes devlint up with faults that are to stay."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from devlint.config import META_RULES, Configs
from devlint.engine import check_source
from devlint.findings import Edit, FileResult, Finding
from devlint.fixes import FileChanged, write_atomically
from devlint.runner import visible
from devlint.settings import Settings
from devlint.source import Source, SourceError
from devlint.suppress import Suppressions, logical_lines

Check = Callable[[Source], list[Finding]]


def silence(results: Sequence[FileResult], configs: Configs, reason: str = "") -> int:
    """Silence the findings of all results in their files, and say so; 2 where that failed anywhere, else 0."""
    count, problems = 0, []
    for result in results:
        findings = about_code(result.findings)
        if not findings:
            continue
        settings = configs.for_file(result.path).settings(result.path)

        def check(source: Source, settings: Settings = settings) -> list[Finding]:
            return visible(source, check_source(source, settings), settings)

        problem = write_noqa(result, check, reason)
        problems += [problem] if problem else []
        count += 0 if problem else len(findings)
    for problem in problems:
        print(f"devlint: {problem}", file=sys.stderr)
    print(f"devlint: silenced {count} finding(s)", file=sys.stderr)
    return 2 if problems else 0


def add_noqa(result: FileResult, reason: str = "") -> str:
    """The text of the result's source with each of its findings silenced; findings about devlint itself stay.

    Codes are added to the line's `# noqa: CODES`, if it has one. Where what flake8 takes for a `# noqa` stands in a
    string, devlint's own comment is used.
    """
    assert result.source is not None
    source = result.source
    lines = logical_lines(source)
    wanted: dict[int, list[Finding]] = {}
    for finding in about_code(result.findings):
        line = finding.span.line
        wanted.setdefault(lines.noqa.get(line, (line, line + 1))[1] - 1, []).append(finding)
    comments = Suppressions(source)
    return source.apply([_edit(source, comments, line, findings, reason) for line, findings in wanted.items()])


def about_code(findings: Sequence[Finding]) -> list[Finding]:
    """The findings about the code, those about devlint itself left out."""
    return [finding for finding in findings if finding.code not in META_RULES]


def _edit(source: Source, comments: Suppressions, line: int, findings: Sequence[Finding], reason: str) -> Edit:
    codes = ",".join(sorted({finding.code for finding in findings}))
    end = source.offset(line, len(source.line(line)))
    because = f" - {reason}" if reason else ""
    noqa = next((comment for comment in comments.by_line.get(line, ()) if not comment.own), None)
    if noqa is None:
        return Edit(end, end, f"  # noqa: {codes}{because}")
    if any(at == noqa.line and column <= noqa.column for at, column, _ in comments.lines.comments):
        at = source.offset(noqa.line, noqa.column) + noqa.length
        return Edit(at, at, "," + codes)
    names = ", ".join(sorted({finding.name for finding in findings}))
    return Edit(end, end, f"  # devlint: ignore[{names}]{because}")


def write_noqa(result: FileResult, check: Check, reason: str = "") -> str:
    """Silence the findings of one file in place; the answer is what went wrong, or empty.

    The file is written only if it still parses and nothing that `check` finds in it is left.
    """
    assert result.source is not None
    path = result.path
    try:
        with open(path, "rb") as file:
            data = file.read()
        source = Source(path, data)
        if source.text != result.source.text:
            return f"{path}: changed while devlint was working on it; nothing was written"
        silenced = Source.from_text(add_noqa(result, reason), path)
        silenced.bom, silenced.encoding = source.bom, source.encoding
        left = check(silenced)
        if about_code(left) or any(f.code == "TDL902" for f in left):
            return f"{path}: its findings cannot be silenced by comments; use per-file-ignores"
        write_atomically(path, silenced.encode(silenced.text), data)
    except OSError as error:
        return f"{path}: cannot be written: {error.strerror or error}"
    except (SourceError, FileChanged) as error:
        return str(error) if str(error).startswith(path) else f"{path}: {error}"
    return ""
