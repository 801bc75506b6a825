"""The documentation says what is true: every option is in it, and its examples are accepted."""

import re
import shlex
from pathlib import Path

import pytest
from conftest import Cli, Project

from devlint.config import FILE_NAMES, META_RULES
from devlint.flake8 import _SHARED
from devlint.options import CHECK, FORMATS, Option, parse
from devlint.toml import read_toml

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "usage.md").read_text(encoding="utf-8")


def fences(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize("option", CHECK, ids=lambda option: option.name)
def test_every_option_and_key_is_named(option: Option) -> None:
    assert f"--{option.name}" in TEXT or f"`{option.name}`" in TEXT
    if option.configurable:
        [keys] = re.findall(r"^All keys: (.*?)\. An", TEXT, re.M | re.S)
        assert f"`{option.name}`" in keys


def test_formats_codes_and_files_are_named() -> None:
    assert [name for name in (*FORMATS, *FILE_NAMES) if f"`{name}`" not in TEXT] == []
    assert [code for code in META_RULES if code not in TEXT] == []
    assert [name for name in _SHARED if f"--devlint-{name}" not in TEXT] == []


def test_the_configuration_is_accepted(cli: Cli, project: Project) -> None:
    [example] = fences("toml")
    assert read_toml(example.encode())["tool"]["devlint"]
    project({"pyproject.toml": example, "a.py": ""})
    found = cli("config")
    assert (found.code, found.err) == (0, "")


def test_the_commands_are_understood() -> None:
    commands = [line for text in fences("sh") for line in text.splitlines()]
    checks = [
        shlex.split(line.partition(" < ")[0], comments=True)[2:]
        for line in commands
        if line.startswith("devlint check")
    ]
    assert len(checks) >= 9
    for arguments in checks:
        parse(arguments, CHECK, "devlint check")
