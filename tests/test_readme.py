"""The README shows what devlint really says, and its configuration is accepted."""

import re
from pathlib import Path

from conftest import Cli, Project

from devlint.checks import rules

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = "examples/article_train.py"


def shortened(line: str) -> str:
    return line if len(line) <= 118 else line[:115].rstrip() + "..."


def test_the_output_is_true(cli: Cli, project: Project) -> None:
    project({EXAMPLE: (ROOT / EXAMPLE).read_bytes()})
    found = cli("check", "--no-cache", "--output-format", "concise", EXAMPLE)
    [shown] = re.findall(r"^```text\n(.*?)^```$", TEXT, re.M | re.S)
    assert found.code == 1
    assert [shortened(line) for line in found.out.splitlines()] == shown.splitlines()


def test_the_example_done_right_is_clean(cli: Cli, project: Project) -> None:
    project({"train.py": (ROOT / "examples" / "train.py").read_bytes()})
    assert cli("check", "--no-cache", "train.py").code == 0


def test_the_configuration_is_accepted(cli: Cli, project: Project) -> None:
    [example] = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.M | re.S)
    project({"pyproject.toml": example, "a.py": ""})
    assert cli("config").code == 0


def test_rules_and_files_that_it_names_exist() -> None:
    assert set(re.findall(r"TDL\d{3}", TEXT)) <= set(rules())
    assert [link for link in re.findall(r"\]\(([^)#:]+)\)", TEXT) if not (ROOT / link).exists()] == []
