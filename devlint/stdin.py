"""Checking what comes on standard input; its fixed text goes to standard output, and then the report to the other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from devlint.cli import finish
from devlint.config import Configs
from devlint.files import is_excluded
from devlint.options import UsageError
from devlint.runner import check_data, difference
from devlint.source import Source, SourceError


def check_stdin(flags: Mapping[str, Any], configs: Configs) -> int:
    """`devlint check -`: the exit code."""
    for name in ("add-noqa", "write-baseline", "diff-base"):
        if name in flags:
            raise UsageError(f"--{name} needs files; it does not work on standard input")
    data = sys.stdin.buffer.read()
    name = flags.get("stdin-filename", "")
    config = configs.for_file(name or "stdin.py")
    path = name or "<stdin>"
    diff = "diff" in flags
    fix = config.flag("fix") or diff
    result = None
    if not (name and config.flag("force-exclude") and is_excluded(name, config)):
        result = check_data(path, data, config.settings(path), fix=fix, unsafe=config.flag("unsafe-fixes"))
    if fix and not diff:
        fixed = data
        if result is not None and result.source is not None and result.fixed:
            try:
                fixed = result.source.encode(result.source.text)
            except SourceError as error:
                print(f"devlint: {path}: {error}", file=sys.stderr)
                return 2
        sys.stdout.flush()
        sys.stdout.buffer.write(fixed)
        sys.stdout.buffer.flush()
    if diff and result is not None and result.source is not None and result.fixed:
        from dataclasses import replace

        result = replace(result, diff=difference(path, Source(path, data).text, result.source.text))
    for problem in result.errors if result else ():
        print(f"devlint: {problem}", file=sys.stderr)
    failed = result is not None and bool(result.errors)
    results = [result] if result else []
    return finish(results, config.values, failed=failed, diff=diff, to_stderr=fix and not diff)
