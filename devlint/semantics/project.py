"""The other files of a project: an imported name found in the checked tree, read and parsed, never imported.

An import is looked for where Python would find it from a script beside the file, or in the package that the file is in, up
to the project's root. What is found is kept for the life of the process, and noted, so that cached findings can tell when
they are stale.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache

from devlint.checks.base import File
from devlint.semantics.imports import Names
from devlint.settings import Settings
from devlint.source import Source, SourceError
from devlint.units import split_units

Stamp = tuple[str, int, int]
"""A file's path, time in nanoseconds, and size."""
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "devlint.toml")
_ELSEWHERE = frozenset(
    "torch numpy np os sys math random time re json typing collections argparse tqdm PIL cv2 matplotlib torchvision".split()
)
"""Packages that no project holds itself, whatever lies beside a file."""
_LARGEST = 500_000
_HIGHEST = 6
_consulted: dict[str, set[Stamp]] = {}


def consulted(path: str) -> list[Stamp]:
    """The files that were read to judge the one at `path`, since this was asked last."""
    return sorted(_consulted.pop(os.path.abspath(path), ()))


def find(path: str, qualified: str) -> tuple[File, str] | None:
    """The file of the project that defines `qualified`, as the file at `path` imports it, and the name there.

    `qualified` starts with dots for a relative import. None for what is not in the tree, or not of torch.
    """
    if qualified.partition(".")[0] in _ELSEWHERE:
        return None
    absolute = os.path.abspath(path)
    for module, name in _modules(absolute, qualified):
        stamp = _stamp(module)
        if stamp is None or module == absolute:
            continue
        _consulted.setdefault(absolute, set()).add(stamp)
        file = _load(*stamp)
        if file is None:
            return None
        if name in file.names.bound:
            return file, name
        # A package that passes the name on.
        onward = file.names.aliases.get(name, set())
        if len(onward) == 1 and next(iter(onward)).startswith("."):
            for inner, last in _modules(module, next(iter(onward))):
                stamp = _stamp(inner)
                if stamp is not None:
                    _consulted[absolute].add(stamp)
                    passed = _load(*stamp)
                    return (passed, last) if passed is not None and last in passed.names.bound else None
        return None
    return None


def imported_names(path: str, names: Names) -> frozenset[str]:
    """The names that the file at `path` imports from its own project."""
    absolute = os.path.abspath(path)
    return frozenset(
        local
        for local, targets in names.aliases.items()
        for target in targets
        if target.partition(".")[0] not in _ELSEWHERE
        and any(
            os.path.isfile(module) for module, _ in (*_modules(absolute, target), *_modules(absolute, target + ".x"))
        )
    )


def _modules(path: str, qualified: str) -> Iterator[tuple[str, str]]:
    """The paths that may hold `qualified`, nearest first, and the name that it would have there."""
    dots = len(qualified) - len(qualified.lstrip("."))
    parts = qualified.lstrip(".").split(".")
    if len(parts) < 1 or (not dots and len(parts) < 2):
        return
    folder = os.path.dirname(path)
    for base in [_above(folder, dots - 1)] if dots else _search_path(folder):
        stem = os.path.join(base, *parts[:-1])
        if len(parts) > 1:
            yield stem + ".py", parts[-1]
        yield os.path.join(stem, "__init__.py"), parts[-1]


def _above(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


@lru_cache(maxsize=256)
def _search_path(folder: str) -> tuple[str, ...]:
    """The folder of a script, and those above it up to the root of its project."""
    found = [folder]
    while len(found) < _HIGHEST and not any(os.path.exists(os.path.join(folder, mark)) for mark in _ROOT_MARKS):
        above = os.path.dirname(folder)
        if above == folder:
            # No project around it: only its own folder is known to be meant.
            return (found[0],)
        folder = above
        found.append(folder)
    return tuple(found)


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return path, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _load(path: str, _time: int, size: int) -> File | None:
    """The file as a check sees it; None where it has nothing to do with torch, or cannot be read or parsed."""
    from devlint.engine import parse

    if size > _LARGEST:
        return None
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        if b"torch" not in data and not re.search(rb"^from \.", data, re.M):
            return None
        source = Source(path, data)
        tree = parse(source)
    except (OSError, SourceError, SyntaxError):
        return None
    return File(source, Names(tree), split_units(source, tree), Settings(frozenset()))
