"""Options and fixtures of the test suite."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import devlint.checks
import devlint.engine
from devlint.checks.base import Check, Rule
from devlint.cli import main
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="write what devlint reports now into the rule pages")


class Outcome(NamedTuple):
    """What a run of the command line came to."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]
Project = Callable[[dict[str, str | bytes]], Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Writes files below an empty folder and goes there."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `devlint …` in this process."""
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)

    def run(*argv: str | os.PathLike[str], stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in argv])
        return Outcome(code, *capsys.readouterr())

    return run


class Probe(Check):
    """Rules on functions that torch lacks, so that tests do not hang on what the real rules find.

    `torch.probe_safe()` and `torch.probe_unsafe()` are to be `torch.probed()`, `torch.probe_broken()` is fixed to
    nonsense, `torch.probe_opt_in()` is off by default, and `torch.probe_fails()` makes the rule fail.
    """

    rules = (
        Rule("TDL191", "probe-safe", "a safe fix", fix="safe"),
        Rule("TDL192", "probe-unsafe", "an unsafe fix", fix="unsafe"),
        Rule("TDL193", "probe-broken", "a fix that breaks the syntax", fix="safe"),
        Rule("TDL194", "probe-opt-in", "no fix", default=False),
    )
    triggers = (("probe_safe", "probe_unsafe", "probe_broken", "probe_opt_in", "probe_fails"),)

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func).removeprefix("torch.")
        if name == "probe_fails":
            raise ZeroDivisionError("the probe failed")
        if name == "probe_opt_in":
            self.report(node, "TDL194", "opt-in probe")
        if name in ("probe_safe", "probe_unsafe", "probe_broken"):
            code = {"probe_safe": "TDL191", "probe_unsafe": "TDL192", "probe_broken": "TDL193"}[name]
            text = "torch.(" if name == "probe_broken" else "torch.probed"
            safety = "unsafe" if name == "probe_unsafe" else "safe"
            fix = Fix("Use `torch.probed`", (replace(self.unit, node.func, text),), safety)
            evidence = [(argument.value, "this is its argument") for argument in node.args]
            self.report(node.func, code, f"`{name}` is a probe", fix=fix, evidence=evidence, help="see the tests")


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the probe's rules to the real ones."""
    every = (*devlint.checks.checks(), Probe)
    monkeypatch.setattr(devlint.checks, "checks", lambda: every)
    monkeypatch.setattr(devlint.engine, "checks", lambda: every)
    caches = (devlint.checks.rules, devlint.checks.default_codes)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()
