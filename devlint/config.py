"""The configuration: `[tool.devlint]` in the nearest pyproject.toml, or the nearest devlint.toml.

A key is named as its flag on the command line, whose values win. What is unknown is an error, never ignored.
"""

from __future__ import annotations

import os

from devlint.options import CHECK, UsageError, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from devlint.cache import Cache
    from devlint.settings import Settings

FILE_NAMES = ("devlint.toml", "pyproject.toml")
META_RULES = {
    "TDL900": "internal-error",
    "TDL901": "unused-suppression",
    "TDL902": "not-parsed",
    "TDL903": "invalid-configuration",
}
"""The codes about devlint itself; they are on unless they are ignored."""

_TABLES = {"per-file-ignores"}
_SELECTING = ("select", "extend-select", "ignore", "per-file-ignores")


class Config:
    """The values that hold for the files below one folder, and what follows from them.

    `values` are those of the configuration file with the command line's over them; `root` is the folder that the
    patterns are relative to, `path` the file, empty where there is none.
    """

    def __init__(self, values: Mapping[str, Any], root: str, path: str = "") -> None:
        self.values = values
        self.root = root
        self.path = path
        self._enabled: frozenset[str] | None = None
        self._settings: dict[frozenset[str], Settings] = {}
        self._per_file: list[tuple[Any, frozenset[str]]] | None = None
        self._cache: Cache | None = None
        self._target: tuple[int, int] | None = None

    def flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return bool(self.values.get(name))

    def words(self, name: str) -> list[str]:
        """The values of a list."""
        return list(self.values.get(name, ()))

    @property
    def enabled(self) -> frozenset[str]:
        """The codes of the rules that run, those about devlint itself included. Raises UsageError."""
        if self._enabled is None:
            self._enabled = self._resolve()
        return self._enabled

    def _resolve(self) -> frozenset[str]:
        from devlint.checks import default_codes

        selected = _Selection(self.values.get("select"), self.path)
        extended = _Selection(self.values.get("extend-select", ()), self.path)
        ignored = _Selection(self.values.get("ignore", ()), self.path)
        defaults = default_codes() | frozenset(META_RULES)
        chosen = set()
        for code in _known_codes():
            base = selected.depth(code) if selected.given else (0 if code in defaults else -1)
            if code in ("TDL900", "TDL902"):
                base = max(base, 0)
            if max(base, extended.depth(code)) > ignored.depth(code):
                chosen.add(code)
        return frozenset(chosen)

    def settings(self, path: str) -> Settings:
        """What the engine is to look for in the file at `path`. Raises UsageError."""
        off: frozenset[str] = frozenset()
        if self.values.get("per-file-ignores"):
            relative = os.path.relpath(os.path.abspath(path), self.root).replace(os.sep, "/")
            for spec, codes in self._file_ignores():
                if spec.match_file(relative):
                    off |= codes
        found = self._settings.get(off)
        if found is None:
            from devlint.settings import Settings

            style = str(self.values.get("fix-style", "torch"))
            found = self._settings[off] = Settings(self.enabled - off, self.target, style)
        return found

    def _file_ignores(self) -> list[tuple[Any, frozenset[str]]]:
        if self._per_file is None:
            from devlint.patterns import spec

            table: dict[str, list[str]] = self.values.get("per-file-ignores", {})
            self._per_file = []
            for pattern, words in table.items():
                selection = _Selection(words, self.path)
                codes = frozenset(code for code in _known_codes() if selection.depth(code) >= 0)
                self._per_file.append((spec([pattern], self.path), codes))
        return self._per_file

    @property
    def cache(self) -> Cache | None:
        """What earlier runs found under this configuration; None where that is not wanted."""
        if self._cache is None and not self.flag("no-cache"):
            from devlint.cache import Cache

            self._cache = Cache(self)
        return self._cache

    @property
    def target(self) -> tuple[int, int] | None:
        """The oldest torch release that the code runs on; None for the newest. Raises UsageError."""
        text = self.values.get("target-torch", "")
        if text and self._target is None:
            self._target = self._read_target(text)
        return self._target

    def _read_target(self, text: str) -> tuple[int, int] | None:
        from devlint.target import oldest_torch, read_version

        if text == "auto":
            return oldest_torch(self.root)
        version = read_version(text)
        if version is None:
            where = f"{self.path}: " if self.path else ""
            raise UsageError(f"{where}target-torch takes a release such as 2.6, or auto, not {text!r}")
        return version

    def validate(self) -> None:
        """Raise UsageError for codes and versions that do not exist, and for patterns that are none."""
        _ = self.target
        patterns = [*self.words("exclude"), *self.words("extend-exclude")]
        if patterns:
            from devlint.patterns import spec

            spec(patterns, self.path)
        # To know the codes takes loading all rules; an earlier run that accepted the configuration spares that.
        if any(self.values.get(name) for name in _SELECTING) and not (self.cache and self.cache.exists()):
            _ = self.enabled
            _ = self._file_ignores()


class _Selection:
    """A list of rule codes, prefixes and names, and how exactly it names a code."""

    def __init__(self, words: Iterable[str] | None, path: str) -> None:
        self.given = words is not None
        self.prefixes: set[str] = set()
        for word in words or ():
            self.prefixes.add(_as_prefix(word, path))

    def depth(self, code: str) -> int:
        """The length of the longest prefix of `code` in the list, 0 for ALL; -1 where nothing names it."""
        return max((len(prefix) for prefix in self.prefixes if code.startswith(prefix)), default=-1)


def _as_prefix(word: str, path: str) -> str:
    codes = _known_codes()
    prefix = word.upper()
    if prefix == "ALL":
        return ""
    if prefix.startswith("T") and any(code.startswith(prefix) for code in codes):
        return prefix
    for code, name in codes.items():
        if name == word.lower():
            return code
    where = f"{path}: " if path else ""
    hint = nearest(prefix, codes) if prefix.startswith("TDL") else nearest(word.lower(), codes.values())
    raise UsageError(f"{where}no rule has the code or name {word!r}{hint or '; `devlint rule --all` lists them'}")


def _known_codes() -> dict[str, str]:
    from devlint.checks import rules

    return {**{code: rule.name for code, rule in rules().items()}, **META_RULES}


class Configs:
    """Finds the configuration that holds for a folder: that of the nearest file, or `only` for all of them."""

    def __init__(self, flags: Mapping[str, Any], only: str = "") -> None:
        self.flags = flags
        self._found: dict[str, Config] = {}
        self.only = self._read(only) if only else None

    def for_folder(self, folder: str, names: Collection[str] | None = None) -> Config:
        """The configuration for the files in `folder` (an absolute path). Raises UsageError.

        `names`, where they are known, are those of everything in the folder; they spare asking the disk.
        """
        if self.only is not None:
            return self.only
        found = self._found.get(folder)
        if found is None:
            found = self._found[folder] = self._look(folder, names)
        return found

    def for_file(self, path: str) -> Config:
        """The configuration for the file at `path`."""
        return self.for_folder(os.path.dirname(os.path.abspath(path)))

    def _look(self, folder: str, names: Collection[str] | None) -> Config:
        for name in FILE_NAMES:
            if names is not None and name not in names:
                continue
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                config = self._read_if_ours(path)
                if config is not None:
                    return config
        above = os.path.dirname(folder)
        return self.for_folder(above) if above != folder else self._merged({}, os.getcwd(), "")

    def _read_if_ours(self, path: str) -> Config | None:
        data = _bytes(path)
        if path.endswith("pyproject.toml") and b"devlint" not in data:
            return None
        table = _table(path, data)
        return None if table is None else self._merged(_checked(table, path), os.path.dirname(path), path)

    def _read(self, path: str) -> Config:
        absolute = os.path.abspath(path)
        table = _table(path, _bytes(path))
        if table is None:
            raise UsageError(f"{path}: it has no [tool.devlint] table")
        return self._merged(_checked(table, path), os.path.dirname(absolute), path)

    def _merged(self, values: dict[str, Any], root: str, path: str) -> Config:
        if "select" in self.flags:
            # Who selects on the command line starts afresh: what the file adds and takes away does not count.
            values = {name: value for name, value in values.items() if name not in ("extend-select", "ignore")}
        merged = {**values, **self.flags}
        for name in ("extend-select", "ignore", "extend-exclude"):
            if name in values and name in self.flags:
                merged[name] = [*values[name], *self.flags[name]]
        if "baseline" in values and "baseline" not in self.flags:
            merged["baseline"] = os.path.join(root, values["baseline"])
        config = Config(merged, root, path)
        config.validate()
        return config


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the configuration: {error.strerror}") from None


def _table(path: str, data: bytes) -> dict[str, Any] | None:
    """The table of ours in a TOML file; None where a pyproject.toml has none."""
    from devlint.toml import TomlError, read_toml

    try:
        content = read_toml(data)
    except TomlError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    if os.path.basename(path) != "pyproject.toml":
        return content
    tool = content.get("tool")
    table = tool.get("devlint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.devlint] must be a table")
    return table


def _checked(table: dict[str, Any], path: str) -> dict[str, Any]:
    """The table, if every key is known and every value of the right kind. Raises UsageError."""
    options = {option.name: option for option in CHECK if option.configurable}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _TABLES:
            well = isinstance(value, dict) and all(_is_words(codes) for codes in value.values())
            expected = "a table of patterns and lists of codes"
        elif key not in options:
            raise UsageError(f"{path}: unknown key {key!r} in [tool.devlint]{nearest(key, [*options, *_TABLES])}")
        else:
            kind = options[key].kind
            well, expected = {
                "flag": (isinstance(value, bool), "true or false"),
                "list": (_is_words(value), "a list of strings"),
                "count": (isinstance(value, int) and not isinstance(value, bool) and value > 0, "a positive number"),
                "value": (isinstance(value, str), "a string"),
            }[kind]
            if well and options[key].choices and value not in options[key].choices:
                choices = options[key].choices
                raise UsageError(
                    f"{path}: {key} takes one of {', '.join(choices)}, not {value!r}{nearest(value, choices)}"
                )
        if not well:
            raise UsageError(f"{path}: {key} must be {expected}, not {value!r}")
        values[key] = value
    return values


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
