"""Where a report goes and what comes with it: the fixes that were applied, statistics, a diff."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from devlint.findings import FileResult
from devlint.options import UsageError
from devlint.report import render, summary
from devlint.report.look import Look, fixable


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: FORCE_COLOR and NO_COLOR decide, else whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def write_report(results: Sequence[FileResult], values: Mapping[str, Any], to_stderr: bool = False) -> None:
    """Write the report to `output-file`, or to standard output. Raises UsageError where the file cannot be written."""
    file = "" if values.get("output-file") == "-" else values.get("output-file", "")
    stream = sys.stderr if to_stderr else sys.stdout
    look = Look(colour=not file and wants_colour(stream), unsafe_fixes=bool(values.get("unsafe-fixes")))
    format = values.get("output-format", "full")
    text = statistics(results, format, look) if values.get("statistics") else render(format, results, look)
    if values.get("show-fixes"):
        text = shown_fixes(results, look) + text if format in ("full", "concise", "grouped") else text
    if file:
        try:
            with open(file, "w", encoding="utf-8", errors="backslashreplace", newline="") as target:
                target.write(text)
        except OSError as error:
            raise UsageError(f"{file}: cannot write the report: {error.strerror}") from None
        return
    put(stream, text)


def put(stream: TextIO, text: str) -> None:
    """Write `text`, whatever the stream's encoding: what it lacks is written as an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def show_diff(results: Sequence[FileResult]) -> int:
    """Print what `--fix` would change; the exit code is 1 where that is anything."""
    text = "".join(result.diff for result in results)
    put(sys.stdout, text)
    count = sum(len(result.fixed) for result in results if result.diff)
    if count:
        files = sum(1 for result in results if result.diff)
        print(f"devlint: would fix {count} finding(s) in {files} file(s)", file=sys.stderr)
    return int(bool(text))


def shown_fixes(results: Sequence[FileResult], look: Look) -> str:
    """The fixes that were applied, by file."""
    lines: list[str] = []
    for result in results:
        if result.fixed:
            lines.append(look.paint("bold", result.path) + ":")
            counts = Counter((finding.code, finding.name) for finding in result.fixed)
            lines += [
                f"  {count} x {look.paint('red', code)} ({name})" for (code, name), count in sorted(counts.items())
            ]
    return "\n".join(["Fixed:", *lines, "", ""]) if lines else ""


def statistics(results: Sequence[FileResult], format: str, look: Look) -> str:
    """How often each rule was found, the most frequent first."""
    findings = [finding for result in results for finding in result.findings]
    counts = Counter((finding.code, finding.name) for finding in findings)
    mended = Counter(finding.code for finding in findings if fixable(finding, look.unsafe_fixes))
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if format in ("json", "jsonl"):
        import json

        table = [{"code": c, "name": n, "count": k, "fixable_count": mended[c]} for (c, n), k in rows]
        if format == "json":
            return json.dumps(table, indent=2) + "\n"
        return "".join(json.dumps(row) + "\n" for row in table)
    width = max((len(str(count)) for _, count in rows), default=0)
    lines = [
        f"{count:>{width}}  {look.paint('red', code)}  [{'*' if mended[code] else ' '}] {name}\n"
        for (code, name), count in rows
    ]
    return "".join(lines) + summary(results, look)
