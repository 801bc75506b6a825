"""The formats: each says all that there is to say, in the way that its readers expect."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import Cli, Project

from devlint.findings import Edit, Evidence, FileResult, Finding, Fix, Span
from devlint.options import FORMATS
from devlint.output import put, wants_colour
from devlint.report import render
from devlint.report.look import Look
from devlint.source import Source

TEXT = "import torch\n\nx = batch[0].to(device)\n\tß = '中文', loss(x, batch[1])\n# the end\n"


def result(path: str = "a.py") -> FileResult:
    source = Source.from_text(TEXT, path)
    start = TEXT.index("batch[1]")
    fix = Fix("Move it, too", (Edit(start + 8, start + 8, ".to(device)"),))
    line, column = source.place(start)
    finding = Finding(
        "TDL101",
        "partial-batch-transfer",
        "`batch[1]` stays on the CPU, 100% of the time",
        Span(line, column, line, column + 8),
        evidence=(Evidence("`batch[0]` is moved here", Span(3, 4, 3, 23)),),
        fix=fix,
        help="or use devlint.runtime.to_device",
        path=path,
    )
    other = Finding("TDL902", "not-parsed", "a <message> & a \x07 bell", Span(5, 0, 6, 0), path=path)
    return FileResult(path, (finding, other), source=source)


def test_full() -> None:
    assert render("full", [result()], Look()) == (
        "TDL101 partial-batch-transfer [*] `batch[1]` stays on the CPU, 100% of the time\n"
        " --> a.py:4:20\n"
        "  |\n"
        "3 | x = batch[0].to(device)\n"
        "4 |     ß = '中文', loss(x, batch[1])\n"
        "  |                         ^^^^^^^^\n"
        "5 | # the end\n"
        "  |\n"
        "  = because: `batch[0]` is moved here\n"
        "3 | x = batch[0].to(device)\n"
        "  |     -------------------\n"
        "  |\n"
        "  = help: or use devlint.runtime.to_device\n"
        "  = fix: Move it, too (--fix does it)\n"
        "\n"
        "TDL902 not-parsed a <message> & a \x07 bell\n"
        " --> a.py:5:1\n"
        "  |\n"
        "4 |     ß = '中文', loss(x, batch[1])\n"
        "5 | # the end\n"
        "  | ^^^^^^^^^\n"
        "\n"
        "Found 2 findings.\n"
        "[*] 1 fixable with `--fix`.\n"
    )


def test_concise_and_grouped() -> None:
    assert render("concise", [result()], Look()).splitlines()[:2] == [
        "a.py:4:20: TDL101 [*] `batch[1]` stays on the CPU, 100% of the time",
        "a.py:5:1: TDL902 a <message> & a \x07 bell",
    ]
    assert render("grouped", [result("b.py"), result()], Look()).startswith(
        "b.py:\n"
        "  4:20  TDL101 [*] `batch[1]` stays on the CPU, 100% of the time\n"
        "  5:1   TDL902 a <message> & a \x07 bell\n"
        "\n"
        "a.py:\n"
    )


def test_colours_and_links_are_only_decoration() -> None:
    for format in ("full", "concise", "grouped"):
        plain, coloured = render(format, [result()], Look()), render(format, [result()], Look(colour=True))
        assert "\x1b" not in plain and "\x1b[1;31mTDL101\x1b[0m" in coloured
        assert render(format, [], Look(colour=True)) == "All checks passed.\n"


def test_colour_is_for_terminals_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def __init__(self, tty: bool) -> None:
            self.isatty = lambda: tty

    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert wants_colour(Terminal(True)) and not wants_colour(Terminal(False))  # type: ignore[arg-type]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colour(Terminal(False))  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal(True))  # type: ignore[arg-type]


def test_json_has_the_places_of_fix_and_evidence() -> None:
    first, second = json.loads(render("json", [result()], Look()))
    assert first["location"] == {"row": 4, "column": 20}
    assert first["end_location"] == {"row": 4, "column": 28}
    assert first["fix"] == {
        "applicability": "safe",
        "message": "Move it, too",
        "edits": [
            {"content": ".to(device)", "location": {"row": 4, "column": 28}, "end_location": {"row": 4, "column": 28}}
        ],
    }
    assert first["evidence"] == [{"message": "`batch[0]` is moved here", "location": {"row": 3, "column": 5}}]
    assert (first["noqa_row"], first["filename"]) == (4, str(Path("a.py").absolute()))
    assert first["help"] == "or use devlint.runtime.to_device"
    assert (second["fix"], second["url"], second["cell"], second["evidence"]) == (None, None, None, [])
    lines = render("jsonl", [result()], Look()).splitlines()
    assert [json.loads(line) for line in lines] == [first, second]


def test_json_is_the_shape_of_ruffs(cli: Cli, project: Project) -> None:
    project({"a.py": 'import os\nimport torch\nx = """\n""" if torch.cuda.is_available else 1\n'})
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F401", "--output-format=json", "a.py"]
    theirs = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)[0]
    [ours] = json.loads(cli("check", "--output-format=json").out)

    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape(item) for key, item in value.items()}
        return [shape(item) for item in value[:1]] if isinstance(value, list) else type(value)

    assert shape({key: value for key, value in ours.items() if key not in ("evidence", "help")}) == shape(theirs)
    assert (ours["location"]["row"], ours["noqa_row"]) == (4, 4)
    assert ours["url"].endswith("/rules/placement/TDL124-uncalled-is-available.md")


def test_github_escapes() -> None:
    first, second = render("github", [result("a,b:c.py")], Look()).splitlines()
    assert first == (
        "::error title=devlint (TDL101),file=a%2Cb%3Ac.py,line=4,endLine=4,col=20,endColumn=28::"
        "a,b:c.py:4:20: TDL101 `batch[1]` stays on the CPU, 100%25 of the time%0A`batch[0]` is moved here (line 3)"
    )
    assert second.startswith("::error title=devlint (TDL902),file=a%2Cb%3Ac.py,line=5,endLine=6::")


def test_gitlab_fingerprints_are_unique_and_stay() -> None:
    rows = json.loads(render("gitlab", [result(), result()], Look()))
    assert len({row["fingerprint"] for row in rows}) == 4
    assert rows[0]["location"] == {
        "path": "a.py",
        "positions": {"begin": {"line": 4, "column": 20}, "end": {"line": 4, "column": 28}},
    }
    again = json.loads(render("gitlab", [result()], Look()))
    assert [row["fingerprint"] for row in again] == [row["fingerprint"] for row in rows[:2]]
    assert {"check_name", "description", "severity", "fingerprint", "location"} == set(rows[0])


def test_sarif() -> None:
    log = json.loads(render("sarif", [result("a b.py"), FileResult("c.py", errors=("c.py: gone",))], Look()))
    [run] = log["runs"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TDL101", "TDL902"]
    first, second = run["results"]
    assert run["tool"]["driver"]["rules"][second["ruleIndex"]]["id"] == second["ruleId"] == "TDL902"
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "a%20b.py"
    assert location["region"] == {"startLine": 4, "startColumn": 20, "endLine": 4, "endColumn": 28}
    assert first["relatedLocations"][0]["message"]["text"] == "`batch[0]` is moved here"
    replacement = first["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"] == {"text": ".to(device)"}
    assert run["invocations"][0]["executionSuccessful"] is False


def test_junit_is_xml_whatever_the_message() -> None:
    root = ElementTree.fromstring(render("junit", [result()], Look()))
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "2", "2")
    failures = root.findall("./testsuite/testcase/failure")
    assert [failure.get("message") for failure in failures] == [
        "`batch[1]` stays on the CPU, 100% of the time",
        "a <message> & a \ufffd bell",
    ]
    assert "line 3: `batch[0]` is moved here" in str(failures[0].text)
    empty = ElementTree.fromstring(render("junit", [], Look()))
    assert (empty.get("tests"), empty.get("failures")) == ("1", "0")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_of_nothing(cli: Cli, project: Project, format: str) -> None:
    project({"a.py": "x = 1\n"})
    found = cli("check", "--output-format", format)
    assert (found.code, found.err) == (0, "")
    assert found.out.endswith("\n") or format in ("github", "jsonl")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_deterministic(format: str) -> None:
    assert render(format, [result(), result("b.py")], Look()) == render(format, [result(), result("b.py")], Look())


def test_an_output_that_lacks_characters(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        put(stream, "größe 中\n")
    assert (tmp_path / "out").read_text() == "gr\\xf6\\xdfe \\u4e2d\n"
