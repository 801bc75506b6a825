"""Which files a run is about: paths in, the Python files below them out, in order and each one once."""

from __future__ import annotations

import os
import stat

from devlint.patterns import spec, spec_of_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from devlint.config import Config, Configs

SUFFIXES = (".py", ".pyi")
DEFAULT_EXCLUDE = frozenset(
    ".git .hg .svn .bzr CVS .direnv .eggs .ipynb_checkpoints .mypy_cache .nox .pytest_cache .pytype .ruff_cache .tox "
    ".venv .vscode .idea __pycache__ __pypackages__ _build buck-out build dist node_modules site-packages venv".split()
)


class Found:
    """The files to check, in order, and what could not be found or read.

    `absolute` gives each file's absolute path. `problems` are for the user's eyes; where one of them kept devlint from
    its job, `failed` is true.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.absolute: dict[str, str] = {}
        self.problems: list[str] = []
        self.failed = False

    def fail(self, problem: str) -> None:
        """Note that something asked for could not be done."""
        self.problems.append(problem)
        self.failed = True


def find(paths: Sequence[str], configs: Configs) -> Found:
    """The files that `paths` name: a file itself, and what of a folder is Python and not excluded.

    A file named outright is checked whatever its suffix, and even if it is excluded, unless `force-exclude` is on;
    a folder named outright is looked into even if it is one of those that are left out by default.
    Raises UsageError for a configuration that is wrong.
    """
    found = Found()
    links: list[str] = []
    ignores = _Ignores()
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            found.fail(explain(path, error))
            continue
        except ValueError:
            found.fail(f"{path!r}: not a path")
            continue
        if stat.S_ISDIR(mode):
            _walk(path, configs, ignores, found, links)
        else:
            config = configs.for_file(path)
            if path.endswith(".ipynb"):
                found.fail(f"{path}: notebooks are not supported; convert it with `jupyter nbconvert --to script`")
            elif not (config.flag("force-exclude") and is_excluded(path, config, ignores)):
                found.absolute[path] = os.path.abspath(path)
    if links:
        real = {os.path.realpath(file) for file in found.absolute}
        for link in sorted(links):
            target = os.path.realpath(link)
            if target not in real:
                real.add(target)
                found.absolute[link] = os.path.abspath(link)
    found.files = sorted(found.absolute)
    return found


def _walk(top: str, configs: Configs, ignores: _Ignores, found: Found, links: list[str]) -> None:
    absolute = os.path.abspath(top)
    if configs.for_folder(absolute).flag("force-exclude") and is_excluded(top, configs.for_folder(absolute), ignores):
        return
    pending = [(top, absolute)]
    before = len(found.problems)
    while pending:
        folder, absolute = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            found.fail(explain(folder, error))
            continue
        names = {entry.name for entry in entries}
        excluded = _excluder(configs.for_folder(absolute, names), ignores, absolute, names)
        for entry in entries:
            name = entry.name
            path = name if folder == "." else entry.path
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not excluded(name, True):
                        pending.append((path, absolute.rstrip(os.sep) + os.sep + name))
                elif name.endswith(SUFFIXES) and not excluded(name, False):
                    if not entry.is_symlink():
                        if entry.is_file():
                            found.absolute[path] = absolute.rstrip(os.sep) + os.sep + name
                    elif entry.is_file():
                        links.append(path)
                    elif not os.path.exists(path):
                        target = os.readlink(path)
                        found.problems.append(f"{path}: a link to {target!r}, which does not exist; left out")
            except OSError as error:
                found.fail(explain(path, error))
    found.problems[before:] = sorted(found.problems[before:])


def is_excluded(path: str, config: Config, ignores: _Ignores | None = None) -> bool:
    """Whether the configuration, or a .gitignore, leaves out `path` or a folder that it is in."""
    ignores = ignores or _Ignores()
    absolute = os.path.abspath(path)
    parts = os.path.relpath(absolute, config.root).split(os.sep)
    if parts[0] == os.pardir:
        return False
    folder = config.root
    for index, name in enumerate(parts):
        last = index == len(parts) - 1
        if name != os.curdir and _excluder(config, ignores, folder)(name, not last or os.path.isdir(absolute)):
            return True
        folder = os.path.join(folder, name)
    return False


def _excluder(
    config: Config, ignores: _Ignores, folder: str, names: Collection[str] | None = None
) -> Callable[[str, bool], bool]:
    """The question, for names in `folder` (absolute), whether they are left out."""
    patterns = config.values.get("exclude")
    own = [*(patterns or ()), *config.words("extend-exclude")]
    usual: frozenset[str] = DEFAULT_EXCLUDE if patterns is None else frozenset()
    chain = [] if config.flag("no-respect-gitignore") else ignores.specs(folder, names)

    def matches(root: str, patterns: Any, name: str, is_folder: bool) -> bool | None:
        relative = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
        include: bool | None = patterns.check_file(relative + "/" if is_folder else relative).include
        return include

    def excluded(name: str, is_folder: bool) -> bool:
        if name in usual or (usual and is_folder and name.endswith((".egg", ".egg-info"))):
            return True
        if own and matches(config.root, spec(own, config.path), name, is_folder):
            return True
        # Of the .gitignore files, the innermost that has something to say decides, as in git.
        verdicts = (matches(root, patterns, name, is_folder) for root, patterns in reversed(chain))
        return next((verdict for verdict in verdicts if verdict is not None), False)

    return excluded


class _Ignores:
    """The .gitignore files that hold for a folder: those from the repository's root down to it."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[str, Any]] | None] = {}

    def specs(self, folder: str, names: Collection[str] | None = None) -> list[tuple[str, Any]]:
        """(folder, patterns) of each .gitignore that holds for names in `folder`, the outermost first.

        `names`, where they are known, are those of everything in the folder.
        """
        return self._within(folder, names) or []

    def _within(self, folder: str, names: Collection[str] | None = None) -> list[tuple[str, Any]] | None:
        """As `specs`; None outside of any repository, where no .gitignore counts."""
        if folder not in self._found:
            above = os.path.dirname(folder)
            if ".git" in names if names is not None else os.path.exists(os.path.join(folder, ".git")):
                inherited: list[tuple[str, Any]] | None = self._read(folder, os.path.join(".git", "info", "exclude"))
            else:
                inherited = self._within(above) if above != folder else None
            if inherited is not None and (names is None or ".gitignore" in names):
                inherited = [*inherited, *self._read(folder, ".gitignore")]
            self._found[folder] = inherited
        return self._found[folder]

    @staticmethod
    def _read(folder: str, name: str) -> list[tuple[str, Any]]:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = [line for line in file.read().split("\n") if line.strip() and not line.startswith("#")]
        except OSError:
            return []
        return [(folder, spec_of_file(lines))] if lines else []


def explain(path: str, error: OSError) -> str:
    """One line on a path that cannot be read: what is wrong, and what to do."""
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return f"{path}: a link to {os.readlink(path)!r}, which does not exist"
        return f"{path or repr(path)}: no such file or folder"
    if isinstance(error, PermissionError):
        return f"{path}: permission denied; make it readable, or exclude it"
    return f"{path}: cannot be read: {error.strerror or error}"
