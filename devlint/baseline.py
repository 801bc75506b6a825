"""A baseline: the findings that a project has when it takes devlint up, so that only new ones are reported.

An entry is a file, a rule and the text of the line, and how often; so it outlives the coming and going of other lines.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from devlint.config import META_RULES
from devlint.findings import FileResult, Finding
from devlint.options import UsageError

_FORMAT = 1
_Key = tuple[str, str, str]


def write_baseline(path: str, results: Sequence[FileResult]) -> int:
    """Write the findings to the file at `path`, and return their number. Raises UsageError where that fails."""
    counts = Counter(key for result in results for _, key in _keyed(result, os.path.dirname(os.path.abspath(path))))
    entries = [
        {"path": file, "code": code, "line": line, "count": count}
        for (file, code, line), count in sorted(counts.items())
    ]
    text = json.dumps({"devlint-baseline": _FORMAT, "findings": entries}, indent=1, ensure_ascii=False) + "\n"
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot write the baseline: {error.strerror}") from None
    return sum(counts.values())


def without_baseline(path: str, results: Sequence[FileResult]) -> list[FileResult]:
    """The results without the findings that the baseline at `path` holds. Raises UsageError where it is none."""
    left = _read(path)
    folder = os.path.dirname(os.path.abspath(path))
    kept = []
    for result in results:
        findings = []
        known = dict(_keyed(result, folder))
        for finding in result.findings:
            key = known.get(finding)
            if key is not None and left[key] > 0:
                left[key] -= 1
            else:
                findings.append(finding)
        kept.append(replace(result, findings=tuple(findings)))
    return [result for result in kept if result.findings or result.errors or result.fixed]


def _keyed(result: FileResult, folder: str) -> Iterator[tuple[Finding, _Key]]:
    """Each finding about the code itself, with what it is known by."""
    for finding in result.findings:
        if finding.code not in META_RULES and result.source is not None:
            file = os.path.relpath(os.path.abspath(finding.path), folder).replace(os.sep, "/")
            yield finding, (file, finding.code, result.source.line(finding.span.line).strip())


def _read(path: str) -> Counter[_Key]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["devlint-baseline"] != _FORMAT:
            raise UsageError(f"{path}: the baseline is of another devlint; write it anew with --write-baseline")
        return Counter({(e["path"], e["code"], e["line"]): int(e["count"]) for e in content["findings"]})
    except OSError as error:
        raise UsageError(f"{path}: cannot read the baseline: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: not a baseline; write one with --write-baseline {path}") from None
