"""The flake8 plugin, alone and in flake8 runs."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli, Project
from flake8.options.manager import OptionManager
from flake8.options.parse_args import parse_args

import devlint
from devlint.checks import rules
from devlint.flake8 import Plugin
from devlint.pages import pages

CODE = "import torch\ntorch.probe_safe(ä)\ntorch.probe_opt_in()\nx = 'ä'; torch.probe_unsafe()\n"


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plugin, "_configs", Plugin._configs)
    monkeypatch.setattr(Plugin, "_asked_for", ())


def run(text: str, *arguments: str, filename: str = "a.py") -> list[tuple[int, int, str]]:
    """What the plugin yields under flake8's own option parser."""
    _, options = parse_args(["--isolated", *arguments])
    Plugin.parse_options(options)
    lines = text.splitlines(keepends=True)
    return [found[:3] for found in Plugin(ast.parse(text), filename, lines).run()]


@pytest.mark.usefixtures("probe")
def test_findings_are_lines_columns_and_texts(project: Project) -> None:
    project({})
    assert run(CODE) == [(2, 0, "TDL191 `probe_safe` is a probe"), (4, 9, "TDL192 `probe_unsafe` is a probe")]


@pytest.mark.usefixtures("probe")
def test_opt_in_rules_are_on_only_where_they_are_named(project: Project) -> None:
    project({})

    def codes(*arguments: str) -> list[str]:
        return [text.split()[0] for _, _, text in run(CODE, *arguments)]

    default = ["TDL191", "TDL192"]
    for arguments in ([], ["--ignore=E501"], ["--select=TDL"], ["--extend-select=TDL"], ["--ignore="]):
        assert codes(*arguments) == default
    for arguments in (["--extend-select=TDL194"], ["--select=E,TDL19"], ["--devlint-extend-select=probe-opt-in"]):
        assert codes(*arguments) == ["TDL191", "TDL194", "TDL192"]
    assert codes("--devlint-select=TDL194") == ["TDL194"]
    assert codes("--devlint-ignore=TDL191") == ["TDL192"]


@pytest.mark.usefixtures("probe")
def test_devlints_configuration_holds(project: Project) -> None:
    root = project({"pyproject.toml": '[tool.devlint]\nselect = ["TDL194"]\n', "other.toml": 'ignore = ["TDL191"]\n'})
    assert [text.split()[0] for _, _, text in run(CODE, filename=str(root / "sub" / "a.py"))] == ["TDL194"]
    found = run(CODE, f"--devlint-config={root / 'other.toml'}")
    assert [text.split()[0] for _, _, text in found] == ["TDL192"]


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("arguments", [[], ["--devlint-config=nix.toml"], ["--devlint-select=TDL19x"]])
def test_a_wrong_configuration_is_tdl903(project: Project, arguments: list[str]) -> None:
    project({} if arguments else {"pyproject.toml": "[tool.devlint]\nfixx = 1\n"})
    [(line, column, text)] = run(CODE, *arguments)
    assert (line, column) == (1, 0)
    assert text.startswith("TDL903 ")


@pytest.mark.usefixtures("probe")
def test_nothing_raises_out_of_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({})
    [(line, _, text)] = run("import torch\ntorch.probe_fails()\n")
    assert (line, text.startswith("TDL900 TDL191, TDL192, TDL193, TDL194 failed on this file")) == (1, True)
    monkeypatch.setattr("devlint.engine.split_units", lambda source, tree: 1 / 0)
    [(line, _, text)] = run("import torch\n")
    assert (line, text.startswith("TDL900 devlint failed on this file with ZeroDivisionError")) == (1, True)


@pytest.mark.usefixtures("probe")
def test_comments(project: Project) -> None:
    project({})
    text = (
        "import torch\n"
        "torch.probe_safe()  # noqa: TDL191\n"
        "torch.probe_safe()  # devlint: ignore[probe-safe] why\n"
        "torch.probed()  # noqa: TDL191\n"
    )
    # What noqa comments silence is the business of flake8, which has an option that turns them off.
    assert [(line, text.split()[0]) for line, _, text in run(text)] == [(2, "TDL191"), (4, "TDL901")]


def test_options_are_registered_once() -> None:
    manager = OptionManager(version="1", plugin_versions="", parents=[], formatter_names=[])
    Plugin.add_options(manager)
    assert "--devlint-select" in manager.parser.format_help()
    assert (Plugin.name, Plugin.version) == ("devlint", devlint.__version__)


def flake8(*arguments: str, stdin: str | None = None) -> list[tuple[str, int, int, str, str]]:
    """The rows of a real flake8 run: path, line, column, code and text."""
    format = "%(path)s\t%(row)d\t%(col)d\t%(code)s\t%(text)s"
    command = [sys.executable, "-m", "flake8", "--isolated", "--select=TDL", f"--format={format}", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, input=stdin)
    assert run.stderr == ""
    rows = [line.split("\t", 4) for line in run.stdout.splitlines()]
    return sorted((path.removeprefix("./"), int(row), int(col), code, text) for path, row, col, code, text in rows)


def devlint_rows(cli: Cli, *arguments: str) -> list[tuple[str, int, int, str, str]]:
    rows = json.loads(cli("check", "--output-format=json", *arguments).out)
    root = Path.cwd()
    return sorted(
        (
            str(Path(row["filename"]).relative_to(root)),
            row["location"]["row"],
            row["location"]["column"],
            row["code"],
            " ".join(row["message"].split()),
        )
        for row in rows
    )


def test_flake8_reads_the_plugin_from_standard_input(project: Project) -> None:
    project({})
    text = "import torch\r\nif torch.cuda.is_available: pass\r\nif torch.cuda.is_available: pass  # noqa\r\n"
    [(path, line, column, code, _)] = flake8("-", stdin=text)
    assert (path, line, column, code) == ("stdin", 2, 4, "TDL124")


def test_flake8_and_the_command_line_agree(cli: Cli, project: Project) -> None:
    """On every case of every page, under all rules, with and without comments that silence."""
    files: dict[str, str | bytes] = {}
    for page in pages():
        for number, fence in enumerate(page.fences()):
            files[f"{page.code}_{number}.py"] = fence.code
            files[f"{page.code}_{number}_crlf.py"] = fence.code.replace("\n", "\r\n")
            lines = fence.code.split("\n")
            for line, code in fence.expected:
                comment = ("noqa", f"noqa: {code}", f"devlint: ignore[{rules()[code].name}] why")[line % 3]
                lines[line - 1] += f"  # {comment}"
            files[f"{page.code}_{number}_noqa.py"] = "\n".join(lines)
    for path in sorted((Path(__file__).parent / "fixtures").glob("*/in.py")):
        files[f"fixtures/{path.parent.name}.py"] = path.read_bytes()
    files["bom.py"] = "\ufeffimport torch\nif torch.cuda.is_available: pass\n"
    files["latin.py"] = "# coding: latin-1\nimport torch\nx = 'é'; y = 1 if torch.cuda.is_available else 2\n".encode(
        "latin-1"
    )
    files["wide.py"] = "import torch\nx = '中文'; y = 1 if torch.cuda.is_available else '中文'\n"
    files["feed.py"] = "import torch\n\x0c\nif torch.cuda.is_available: pass\n"
    files["whole.py"] = "# flake8: noqa\nimport torch\nif torch.cuda.is_available: pass\n"
    files["pyproject.toml"] = '[tool.devlint]\nselect = ["ALL"]\n'
    project(files)
    found = devlint_rows(cli)
    assert flake8(".") == found
    assert {code for *_, code, _ in found} >= {
        code for page in pages() for f in page.fences() for _, code in f.expected
    }
