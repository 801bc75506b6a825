"""The options of the command line and the keys of the configuration: one table for both.

A parser of its own, because `argparse` alone costs more than checking a small file may.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

FORMATS = ("full", "concise", "grouped", "json", "jsonl", "github", "gitlab", "sarif", "junit")


class UsageError(Exception):
    """The command line or the configuration asks for something that does not exist; the message says what does."""


class Option:
    """One option: a flag, a value, a list of values parted by commas, or a number.

    `kind` is `flag`, `value`, `list`, `count` (a positive number) or `optional` (a flag that may carry `=VALUE`).
    `configurable` options are keys of `[tool.devlint]` too, under the same name.
    """

    __slots__ = ("choices", "configurable", "group", "help", "kind", "metavar", "name")

    def __init__(
        self,
        name: str,
        kind: str,
        help: str,
        *,
        group: str = "",
        metavar: str = "",
        choices: Sequence[str] = (),
        configurable: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.group = group
        self.metavar = metavar
        self.choices = choices
        self.configurable = configurable

    def usage(self) -> str:
        """How the option is written: `--select CODES`."""
        if self.kind == "flag":
            return f"--{self.name}"
        return f"--{self.name}[={self.metavar}]" if self.kind == "optional" else f"--{self.name} {self.metavar}"

    def read(self, text: str) -> Any:
        """The value that `text` stands for. Raises UsageError."""
        if self.kind == "list":
            words = text.replace(",", " ").split()
            if not words:
                raise UsageError(f"--{self.name} needs a value: {self.usage()}")
            return words
        if self.kind == "count":
            if not text.isdigit() or int(text) < 1:
                raise UsageError(f"--{self.name} takes a positive number, not {text!r}")
            return int(text)
        if self.choices and text not in self.choices:
            raise UsageError(
                f"--{self.name} takes one of {', '.join(self.choices)}, not {text!r}{nearest(text, self.choices)}"
            )
        return text


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is most like `word`: `; did you mean 'select'?`, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


_RULES, _FILES, _FIXES, _OUTPUT, _RUN = "Rules", "Files", "Fixes", "Output", "Run"
_KNOWN = "Known findings"

CHECK = (
    Option("select", "list", "rules to run instead of the default ones: codes, prefixes, names, or ALL",
           group=_RULES, metavar="CODES", configurable=True),
    Option("extend-select", "list", "rules to run besides", group=_RULES, metavar="CODES", configurable=True),
    Option("ignore", "list", "rules not to run", group=_RULES, metavar="CODES", configurable=True),
    Option("target-torch", "value", "the oldest torch release that the code runs on, or auto: from its dependencies",
           group=_RULES, metavar="VERSION", configurable=True),
    Option("fix-style", "value", "fixes in plain torch, or with devlint.runtime",
           group=_RULES, metavar="STYLE", choices=("torch", "runtime"), configurable=True),
    Option("exclude", "list", "what not to check, instead of the default list (patterns as in .gitignore)",
           group=_FILES, metavar="PATTERNS", configurable=True),
    Option("extend-exclude", "list", "what not to check besides", group=_FILES, metavar="PATTERNS", configurable=True),
    Option("force-exclude", "flag", "leave excluded files out even where they are named on the command line",
           group=_FILES, configurable=True),
    Option("no-respect-gitignore", "flag", "check files that .gitignore names, too", group=_FILES, configurable=True),
    Option("stdin-filename", "value", "the name of what is read from standard input", group=_FILES, metavar="FILE"),
    Option("fix", "flag", "apply the safe fixes", group=_FIXES, configurable=True),
    Option("unsafe-fixes", "flag", "apply unsafe fixes as well", group=_FIXES, configurable=True),
    Option("diff", "flag", "show what --fix would change, and change nothing", group=_FIXES),
    Option("show-fixes", "flag", "list the fixes that were applied", group=_FIXES, configurable=True),
    Option("exit-non-zero-on-fix", "flag", "exit with 1 where anything was fixed", group=_FIXES),
    Option("baseline", "value", "leave out the findings that this file holds", group=_KNOWN, metavar="FILE",
           configurable=True),
    Option("write-baseline", "value", "write all findings to this file", group=_KNOWN, metavar="FILE"),
    Option("diff-base", "value", "leave out findings on lines that are as they were in this git revision",
           group=_KNOWN, metavar="REV"),
    Option("add-noqa", "optional", "add a `# noqa` comment for each finding", group=_KNOWN, metavar="REASON"),
    Option("output-format", "value", "full, or one of " + ", ".join(FORMATS[1:]),
           group=_OUTPUT, metavar="FORMAT", choices=FORMATS, configurable=True),
    Option("output-file", "value", "write the report there", group=_OUTPUT, metavar="FILE"),
    Option("statistics", "flag", "count the findings of each rule instead of listing them", group=_OUTPUT),
    Option("config", "value", "the configuration file to use: pyproject.toml or devlint.toml",
           group=_RUN, metavar="FILE"),
    Option("no-cache", "flag", "neither read nor write the cache", group=_RUN, configurable=True),
    Option("jobs", "count", "processes to run at once; as many as there are processors where it pays",
           group=_RUN, metavar="N", configurable=True),
)  # fmt: skip


def parse(argv: Sequence[str], options: Sequence[Option], command: str) -> tuple[dict[str, Any], list[str]]:
    """The values of the options in `argv`, by name, and the other arguments. Raises UsageError."""
    known = {option.name: option for option in options}
    values: dict[str, Any] = {}
    rest: list[str] = []
    pending = list(reversed(argv))
    while pending:
        argument = pending.pop()
        if argument == "--":
            rest += reversed(pending)
            break
        if not argument.startswith("-") or argument == "-":
            rest.append(argument)
            continue
        name, equals, text = argument[2:].partition("=")
        option = known.get(name) if argument.startswith("--") else None
        if option is None:
            hint = nearest(argument.partition("=")[0], ["--" + name for name in known])
            raise UsageError(f"{command} has no option {argument.partition('=')[0]}{hint or f'; see {command} --help'}")
        if option.kind == "flag":
            if equals:
                raise UsageError(f"--{name} takes no value")
            values[name] = True
        elif option.kind == "optional":
            values[name] = text
        else:
            if not equals:
                if not pending or (pending[-1].startswith("--") and pending[-1] != "--"):
                    raise UsageError(f"--{name} needs a value: {option.usage()}")
                text = pending.pop()
            value = option.read(text)
            values[name] = values.get(name, []) + value if option.kind == "list" else value
    return values, rest


def describe(options: Sequence[Option]) -> str:
    """The options as help text, by group."""
    import textwrap

    lines: list[str] = []
    for group in dict.fromkeys(option.group for option in options):
        lines += ["", f"{group or 'Options'}:"]
        for option in options:
            if option.group == group:
                first, *more = textwrap.wrap(option.help, 76)
                usage = f"  {option.usage()}"
                lines += [f"{usage:<30}  {first}" if len(usage) < 30 else f"{usage}\n{'':<32}{first}"]
                lines += [f"{'':<32}{line}" for line in more]
    return "\n".join(lines)
