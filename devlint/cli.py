"""The command line. Exit codes: 0 nothing found, 1 something found, 2 devlint could not do its job."""

from __future__ import annotations

import os
import sys

from devlint import __version__
from devlint.options import CHECK, UsageError, describe, nearest, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from devlint.config import Configs
    from devlint.findings import FileResult

_COMMANDS = {
    "check": "find faults, and mend them: devlint check [OPTIONS] [PATH ...|-]",
    "rule": "print a rule's page, or a line on each: devlint rule CODE|NAME|--all",
    "config": "print the configuration that holds here: devlint config [PATH]",
    "clean": "remove what earlier runs have kept: devlint clean [PATH]",
    "completions": "print a script for the shell: devlint completions bash|zsh|fish",
    "rehearse": "run a training script on the CPU under CUDA's rules: devlint rehearse SCRIPT [ARGS]",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; whatever goes wrong is one line on standard error."""
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        print(f"devlint: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has gone, as in `devlint check | head`; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except KeyboardInterrupt:
        print("devlint: interrupted", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("DEVLINT_DEBUG"):
            raise
        text = f"devlint: internal error: {type(error).__name__}: {error}"
        print(f"{text}; please report it, with what DEVLINT_DEBUG=1 prints", file=sys.stderr)
        return 2


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if argv else 2
    command, rest = argv[0], argv[1:]
    if command in ("-V", "--version", "version"):
        print(f"devlint {__version__}")
        return 0
    if command == "check":
        return _check(rest)
    if command == "rule":
        from devlint.about import rule

        return rule(rest)
    if command == "config":
        from devlint.about import config

        return config(rest)
    if command == "clean":
        from devlint.about import clean

        return clean(rest)
    if command == "completions":
        from devlint.completions import completions

        return completions(rest, list(_COMMANDS))
    if command == "rehearse":
        return _rehearse(rest)
    hint = nearest(command, _COMMANDS)
    if os.path.exists(command):
        hint = f"; did you mean `devlint check {command}`?"
    raise UsageError(f"no command is called {command!r}{hint or '; see devlint --help'}")


def _usage() -> str:
    lines = [f"  {name:<13}{text}" for name, text in _COMMANDS.items()]
    head = "devlint finds, explains and mends what goes wrong with devices in PyTorch code.\n\nCommands:"
    return "\n".join(
        [head, *lines, "", "`devlint check --help` lists its options; `devlint --version` prints the version."]
    )


def _rehearse(argv: list[str]) -> int:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UsageError("rehearse runs the script and needs torch: pip install 'devlint[runtime]'")
    module = importlib.import_module("devlint.runtime._rehearse.cli")
    code: int = module.main(argv)
    return code


def _check(argv: list[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print("devlint check [OPTIONS] [PATH ...|-]\n")
        print("Exit code 0: nothing found; 1: findings; 2: devlint could not do its job.")
        print(describe(CHECK))
        return 0
    flags, paths = parse(argv, CHECK, "devlint check")
    for fixing in ("fix", "diff"):
        _exclude_each_other(flags, (fixing, "write-baseline", "add-noqa"))
        _exclude_each_other(flags, (fixing, "diff-base"))
    if "write-baseline" in flags or "add-noqa" in flags or "diff-base" in flags:
        flags["fix"] = False
    from devlint.config import Configs

    configs = Configs(flags, flags.get("config", ""))
    if "-" in paths:
        if len(paths) > 1:
            raise UsageError("`-` stands for standard input and cannot be mixed with paths")
        from devlint.stdin import check_stdin

        return check_stdin(flags, configs)
    if "stdin-filename" in flags:
        raise UsageError("--stdin-filename names what is read from standard input: give `-` as the path")
    from devlint.files import find
    from devlint.runner import run

    found = find(paths or ["."], configs)
    for problem in found.problems:
        print(f"devlint: {problem}", file=sys.stderr)
    if not found.files and not found.problems and not flags.get("force-exclude"):
        print("devlint: no Python files to check" + (f" in {', '.join(paths)}" if paths else ""), file=sys.stderr)
    values = configs.for_folder(os.getcwd()).values
    results = run(found, configs, values.get("jobs"), diff="diff" in flags)
    return _conclude(results, configs, flags, values, failed=found.failed)


def _exclude_each_other(flags: Mapping[str, Any], names: Sequence[str]) -> None:
    given = [f"--{name}" for name in names if name in flags]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")


def _conclude(
    results: list[FileResult], configs: Configs, flags: Mapping[str, Any], values: Mapping[str, Any], *, failed: bool
) -> int:
    """Report the findings, or file them where they need not be reported again; the exit code.

    `failed` says that something could not be checked, of which the user knows already.
    """
    for result in results:
        for error in result.errors:
            print(f"devlint: {error}", file=sys.stderr)
            failed = True
    if "diff-base" in flags:
        from devlint.changed import only_changed

        results = only_changed(results, flags["diff-base"])
    if "write-baseline" in flags:
        from devlint.baseline import write_baseline

        count = write_baseline(flags["write-baseline"], results)
        print(f"devlint: wrote {count} finding(s) to {flags['write-baseline']}", file=sys.stderr)
        return 2 if failed else 0
    if values.get("baseline"):
        from devlint.baseline import without_baseline

        results = without_baseline(values["baseline"], results)
    if "add-noqa" in flags:
        from devlint.noqa import silence

        return max(2 if failed else 0, silence(results, configs, flags["add-noqa"]))
    return finish(results, values, failed=failed, diff="diff" in flags)


def finish(
    results: Sequence[FileResult], values: Any, *, failed: bool, diff: bool = False, to_stderr: bool = False
) -> int:
    """Report the results as the configuration says, and return the exit code, which is 2 if anything `failed`."""
    if diff:
        from devlint.output import show_diff

        return max(2 if failed else 0, show_diff(results))
    format = values.get("output-format", "full")
    file = values.get("output-file", "")
    if results or file or format not in ("full", "concise", "grouped"):
        from devlint.output import write_report

        write_report(results, values, to_stderr)
    elif not failed:
        print("All checks passed.", file=sys.stderr if to_stderr else sys.stdout)
    if failed:
        return 2
    fixed = any(result.fixed for result in results)
    return int(any(result.findings for result in results) or (fixed and bool(values.get("exit-non-zero-on-fix"))))
