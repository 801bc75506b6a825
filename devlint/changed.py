"""The lines that differ from a revision, so that a review is told of its own faults only."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from devlint.findings import FileResult, Finding
from devlint.options import UsageError

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.M)


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
        self._tops: dict[str, str] = {}
        self._repositories: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {}

    def lines(self, path: str) -> set[int] | None:
        """The changed lines of the file at `path`; None where all of it is new."""
        folder, name = os.path.split(os.path.realpath(path))
        if folder not in self._tops:
            self._tops[folder] = _git(folder, "rev-parse", "--show-toplevel").rstrip("\n")
        top = self._tops[folder]
        if top not in self._repositories:
            self._repositories[top] = self._look(top)
        base, changed, untracked = self._repositories[top]
        relative = os.path.relpath(os.path.join(folder, name), top).replace(os.sep, "/")
        if relative in untracked:
            return None
        if relative not in changed:
            return set()
        # One file at a time: a diff of several names them in its headers, and there git quotes what it finds odd.
        return _added(_git(top, "diff", *_DIFF, "--unified=0", base, "--", f":(literal){relative}"))

    def _look(self, top: str) -> tuple[str, frozenset[str], frozenset[str]]:
        """The commit to compare with, the files changed since, and those that git does not know."""
        # The diff goes from where the branch left the revision, so that others' later work does not count.
        base = _git(top, "merge-base", self.revision, "HEAD").strip()
        changed = _git(top, "diff", *_DIFF, "--name-only", "-z", base, "--").split("\0")
        untracked = _git(top, "ls-files", "--others", "-z").split("\0")
        return base, frozenset(changed), frozenset(untracked)


_DIFF = ("--no-color", "--no-ext-diff", "--no-renames")


def _added(diff: str) -> set[int]:
    """The lines that the diff of one file, made without context, adds or changes."""
    lines: set[int] = set()
    for match in _HUNK.finditer(diff):
        first, count = int(match[1]), int(match[2] or "1")
        lines.update(range(first, first + count))
    return lines


def _git(folder: str, *arguments: str) -> str:
    command = ["git", *arguments]
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--diff-base needs git: {error.strerror}") from None
    if run.returncode:
        reason = run.stderr.strip().splitlines() or ["nothing in common with HEAD"]
        raise UsageError(f"--diff-base: git {arguments[0]} failed in {folder}: {reason[-1]}")
    return run.stdout
