"""The flake8 plugin: the same findings as `devlint check`, in a flake8 run.

flake8 hands over its own syntax tree and lines, so nothing is read or parsed again. What `# noqa` silences is left to
flake8. Nothing raises out of `run()`: flake8 would end its whole run, for all files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from devlint import __version__
from devlint.config import Config, Configs
from devlint.options import CHECK, UsageError

_Violation = tuple[int, int, str, type[Any]]
_SHARED = ("select", "extend-select", "ignore", "target-torch", "fix-style", "config")
"""The options of `devlint check` that flake8 takes, too, as `--devlint-…`."""


class Plugin:
    """What flake8 makes for each file, and runs."""

    name = "devlint"
    version = __version__
    _configs: ClassVar[Configs | UsageError] = Configs({})
    _asked_for: ClassVar[tuple[str, ...]] = ()

    def __init__(self, tree: ast.Module, filename: str, lines: Sequence[str]) -> None:
        self.tree = tree
        self.filename = filename
        self.lines = lines

    @classmethod
    def add_options(cls, manager: Any) -> None:
        """Register devlint's options; they can stand in flake8's configuration as well."""
        for option in CHECK:
            if option.name in _SHARED:
                manager.add_option(
                    f"--devlint-{option.name}",
                    default=None,
                    parse_from_config=True,
                    metavar=option.metavar,
                    help=option.help,
                )

    @classmethod
    def parse_options(cls, options: Any) -> None:
        """Take devlint's options, and the rules that flake8's own selection names one by one."""
        flags: dict[str, Any] = {}
        try:
            for option in CHECK:
                text = getattr(options, "devlint_" + option.name.replace("-", "_"), None)
                if option.name in _SHARED and text:
                    flags[option.name] = option.read(text)
            cls._configs = Configs(flags, flags.get("config", ""))
        except UsageError as error:
            cls._configs = error
        named = [*(getattr(options, "select", None) or ()), *(getattr(options, "extend_select", None) or ())]
        cls._asked_for = tuple(code for code in named if re.fullmatch(r"TDL\d+", code))

    def run(self) -> Iterator[_Violation]:
        """The findings as flake8 wants them: line, column (0-based, in characters), text, type."""
        if any("torch" in line for line in self.lines):
            for line, column, text in self._violations():
                yield line, column, text, type(self)

    def _violations(self) -> list[tuple[int, int, str]]:
        from devlint.runner import internal_error

        try:
            findings = self._findings()
        except UsageError as error:
            return [(1, 0, f"TDL903 {error}")]
        except Exception as error:
            findings = [internal_error(self.filename, error)]
        return [(f.span.line, f.span.column, f"{f.code} {' '.join(f.message.split())}") for f in findings]

    def _findings(self) -> list[Any]:
        from devlint.engine import check_source
        from devlint.runner import visible
        from devlint.source import Source

        if isinstance(self._configs, UsageError):
            raise self._configs
        config = self._configs.for_file(self.filename)
        settings = self._with_flake8_selection(config).settings(self.filename)
        source = Source.from_text("".join(self.lines), self.filename)
        findings = check_source(source, settings, self.tree)
        return visible(source, findings, settings, noqa=False)

    def _with_flake8_selection(self, config: Config) -> Config:
        """A rule that is opt-in is on where flake8's select or extend-select names it, `TDL` alone apart."""
        if not self._asked_for:
            return config
        words = [*config.words("extend-select"), *self._asked_for]
        return Config({**config.values, "extend-select": words}, config.root, config.path)
