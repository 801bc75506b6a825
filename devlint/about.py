"""What devlint knows and keeps: `devlint rule`, `devlint config` and `devlint clean`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from devlint.options import CHECK, Option, UsageError, parse

_RULE = (
    Option("all", "flag", "a line on each rule"),
    Option("output-format", "value", "text or json", metavar="FORMAT", choices=("text", "json")),
)
_CONFIG = (Option("config", "value", "the configuration file to use", metavar="FILE"),)


def rule(argv: Sequence[str]) -> int:
    """`devlint rule CODE|NAME`, `devlint rule --all`: the exit code."""
    from devlint.checks import rules
    from devlint.output import put

    flags, wanted = parse(argv, _RULE, "devlint rule")
    as_json = flags.get("output-format") == "json"
    if "all" in flags:
        facts = list(rules().values())
        if as_json:
            _json([_facts(rule.code) for rule in facts])
        else:
            on = {True: "on", False: "opt-in"}
            put(
                sys.stdout, "".join(f"{r.code}  {on[r.default]:<6}  {r.fix:<6}  {r.name}: {r.summary}\n" for r in facts)
            )
        return 0
    if not wanted:
        raise UsageError("devlint rule needs a rule's code or name, or --all")
    from devlint.pages import UnknownRule, find_page

    try:
        pages = [find_page(word) for word in wanted]
    except UnknownRule as error:
        raise UsageError(str(error)) from None
    if as_json:
        _json([{**_facts(page.code), "page": page.text} for page in pages])
    else:
        put(sys.stdout, "\n".join(page.text for page in pages))
    return 0


def _facts(code: str) -> dict[str, object]:
    from devlint.checks import rules
    from devlint.report.look import rule_url

    rule = rules()[code]
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.summary,
        "fix": rule.fix,
        "default": rule.default,
        "since": rule.since,
        "url": rule_url(code),
    }


def _json(value: object) -> None:
    import json

    from devlint.output import put

    put(sys.stdout, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def config(argv: Sequence[str]) -> int:
    """`devlint config [PATH]`: the configuration that holds there; the exit code."""
    from devlint.config import Configs
    from devlint.output import put

    flags, paths = parse(argv, _CONFIG, "devlint config")
    if len(paths) > 1:
        raise UsageError("devlint config takes one path")
    path = paths[0] if paths else os.getcwd()
    configs = Configs({}, flags.get("config", ""))
    found = configs.for_folder(os.path.abspath(path)) if os.path.isdir(path) else configs.for_file(path)
    settings = found.settings(path if not os.path.isdir(path) else os.path.join(path, "_.py"))
    lines = [f"# {found.path or 'no configuration file: the defaults'}"]
    lines += [f"{o.name} = {_toml(found.values[o.name])}" for o in CHECK if o.configurable and o.name in found.values]
    for pattern, codes in found.values.get("per-file-ignores", {}).items():
        lines.append(f"per-file-ignores.{_toml(pattern)} = {_toml(codes)}")
    target = ".".join(map(str, settings.target_torch)) if settings.target_torch else "the newest"
    lines += [f"# oldest torch release: {target}", f"# rules that run ({len(settings.enabled)}):"]
    lines += [f"#   {code}" for code in sorted(settings.enabled)]
    put(sys.stdout, "\n".join(lines) + "\n")
    return 0


def _toml(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def clean(argv: Sequence[str]) -> int:
    """`devlint clean [PATH]`: remove the cache that belongs to PATH's configuration; the exit code."""
    import shutil

    from devlint.cache import FOLDER
    from devlint.config import Configs

    _, paths = parse(argv, (), "devlint clean")
    if len(paths) > 1:
        raise UsageError("devlint clean takes one path")
    folder = os.path.join(Configs({}).for_folder(os.path.abspath(paths[0] if paths else os.getcwd())).root, FOLDER)
    if not os.path.isdir(folder):
        print(f"devlint: there is no cache in {os.path.dirname(folder)}", file=sys.stderr)
        return 0
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be removed: {error.strerror}") from None
    print(f"devlint: removed {folder}", file=sys.stderr)
    return 0
