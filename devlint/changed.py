"""The lines that differ from a revision, so that a review is told of its own faults only."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from devlint.findings import FileResult, Finding
from devlint.options import UsageError

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def only_changed(results: Sequence[FileResult], revision: str) -> list[FileResult]:
    """The results without the findings that stand on lines unchanged since `revision`.

    A finding counts as changed where a line of its place, or of its evidence, is. Raises UsageError where git fails.
    """
    changes = _Changes(revision)
    kept = []
    for result in results:
        lines = changes.lines(result.path)
        findings = tuple(f for f in result.findings if lines is None or not lines.isdisjoint(_lines(f)))
        kept.append(replace(result, findings=findings))
    return [result for result in kept if result.findings or result.errors]


def _lines(finding: Finding) -> set[int]:
    spans = [finding.span, *(step.span for step in finding.evidence)]
    return {line for span in spans for line in range(span.line, span.end_line + 1)}


class _Changes:
    """What git says about the working tree against a revision, repository by repository."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._repositories: dict[str, tuple[dict[str, set[int]], set[str]]] = {}

    def lines(self, path: str) -> set[int] | None:
        """The changed lines of the file at `path`; None where all of it is new."""
        folder, name = os.path.split(os.path.realpath(path))
        top = _git(folder, "rev-parse", "--show-toplevel").rstrip("\n")
        if top not in self._repositories:
            # The diff goes from where the branch left the revision, so that others' later work does not count.
            base = _git(top, "merge-base", self.revision, "HEAD").strip()
            untracked = _git(top, "ls-files", "--others", "-z").split("\0")
            self._repositories[top] = _hunks(_git(top, "diff", *_DIFF, base, "--")), set(untracked)
        changed, untracked_files = self._repositories[top]
        relative = os.path.relpath(os.path.join(folder, name), top).replace(os.sep, "/")
        return None if relative in untracked_files else changed.get(relative, set())


_DIFF = ("--no-color", "--no-ext-diff", "--no-renames", "--unified=0", "--src-prefix=a/", "--dst-prefix=b/")


def _hunks(diff: str) -> dict[str, set[int]]:
    """By file, the lines that a diff without context adds or changes."""
    found: dict[str, set[int]] = {}
    current: set[int] = set()
    header = False
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            header = True
        elif header and line.startswith("+++ "):
            name = line[4:].removesuffix("\t")
            current = found.setdefault(name.removeprefix("b/"), set())
        elif match := _HUNK.match(line):
            header = False
            first, count = int(match[1]), int(match[2] or "1")
            current.update(range(first, first + count))
    return found


def _git(folder: str, *arguments: str) -> str:
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--diff-base needs git: {error.strerror}") from None
    if run.returncode:
        reason = run.stderr.strip().splitlines() or ["nothing in common with HEAD"]
        raise UsageError(f"--diff-base: git {arguments[0]} failed in {folder}: {reason[-1]}")
    return run.stdout
