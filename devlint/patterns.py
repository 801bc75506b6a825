"""Patterns as in .gitignore, by `pathspec`, which is imported when the first one is met."""

from __future__ import annotations

from devlint.options import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_compiled: dict[tuple[str, ...], Any] = {}


def spec(lines: Iterable[str], where: str = "") -> Any:
    """The `GitIgnoreSpec` of patterns that a user configured in file `where`. Raises UsageError for what is none."""
    key = tuple(lines)
    if key not in _compiled:
        from pathspec import GitIgnoreSpec

        for line in key:
            if not _valid(line):
                raise UsageError(f"{where + ': ' if where else ''}{line!r} is no pattern as in .gitignore")
        _compiled[key] = GitIgnoreSpec.from_lines(key)
    return _compiled[key]


def spec_of_file(lines: Iterable[str]) -> Any:
    """The `GitIgnoreSpec` of a .gitignore's lines; those that are no patterns are passed over, as git does."""
    return spec(line for line in lines if _valid(line))


def _valid(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
