"""The oldest torch release that a project says it runs on, read from its own dependencies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from devlint.toml import TomlError, read_toml

_REQUIREMENT = re.compile(r"^[^#]*?(?<![\w.-])torch(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?([^;#\"')]*)", re.I)
_BOUND = re.compile(r"(===?|~=|>=|>|\^|~)\s*v?(\d+)(?:\.(\d+|\*))?")


def read_version(text: str) -> tuple[int, int] | None:
    """`(2, 6)` for `2.6` or `2.6.1`; None for anything else."""
    match = re.fullmatch(r"\s*v?(\d+)\.(\d+)(?:\.\w+)*(?:\+\w+)?\s*", text)
    return (int(match[1]), int(match[2])) if match else None


def oldest_torch(root: str) -> tuple[int, int] | None:
    """The lowest torch release that the project in folder `root` allows; None where it names no lower bound.

    Read are `pyproject.toml` (project, dependency groups, Poetry), `setup.cfg`, `setup.py` and `requirements*.txt`;
    nothing is executed.
    """
    bounds = [bound for text in _requirements(root) if (bound := lower_bound(text)) is not None]
    return min(bounds) if bounds else None


def lower_bound(requirement: str) -> tuple[int, int] | None:
    """The lowest release that a requirement such as `torch>=2.1,<3` allows; None where it is not torch's."""
    match = _REQUIREMENT.match(requirement)
    if not match:
        return None
    found = [(int(b[2]), int(b[3]) if b[3] and b[3] != "*" else 0) for b in _BOUND.finditer(match[1])]
    return max(found) if found else None


def _requirements(root: str) -> Iterator[str]:
    content = _toml(os.path.join(root, "pyproject.toml"))
    project = _dict(content.get("project"))
    groups = [project.get("dependencies"), *_dict(project.get("optional-dependencies")).values()]
    groups += _dict(content.get("dependency-groups")).values()
    for group in groups:
        if isinstance(group, list):
            yield from (text for text in group if isinstance(text, str))
    poetry = _dict(_dict(content.get("tool")).get("poetry"))
    tables = [poetry.get("dependencies")]
    tables += [_dict(group).get("dependencies") for group in _dict(poetry.get("group")).values()]
    for table in tables:
        version = _dict(table).get("torch")
        version = _dict(version).get("version", version)
        if isinstance(version, str):
            yield "torch" + (version if not version[:1].isdigit() else "==" + version)
    for name in _names(root):
        yield from _lines(os.path.join(root, name))


def _names(root: str) -> list[str]:
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [n for n in names if n in ("setup.cfg", "setup.py") or re.fullmatch(r"requirements.*\.txt", n)]


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file
    except OSError:
        return


def _toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return read_toml(file.read())
    except (OSError, TomlError):
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
