"""Suppression comments: flake8's read as flake8 reads them, devlint's own, and those that silence nothing."""

import json
import subprocess
import sys

import pytest
from conftest import Cli, Project
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devlint import suppress
from devlint.findings import Finding, Span
from devlint.source import Source

pytestmark = pytest.mark.usefixtures("probe")


def silenced(text: str, line: int, code: str = "TDL191", name: str = "probe-safe") -> bool:
    finding = Finding(code, name, "message", Span(line, 0, line, 1), path="a.py")
    return suppress.apply(Source.from_text(text, "a.py"), [finding]) == []


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# noqa", True),
        ("#noqa", False),
        ("# NOQA", True),
        ("# noqa:TDL191", True),
        ("# noqa: TDL191", True),
        ("# NoQA: TDL191", True),
        ("# noqa: TDL1", True),
        ("# noqa: TDL19", True),
        ("# noqa: TDL2", False),
        ("# noqa: tdl191", False),
        ("# noqa: TDL192", False),
        ("# noqa: E501,TDL191", True),
        ("# noqa: E501 TDL191", True),
        ("# noqa: E501, W1 ,  TDL191 why", True),
        ("# noqa: E501", False),
        ("# noqa : E501", True),
        ("# noqa: TDL", True),
        ("# noqa:  E501", True),
        ("# type: ignore # noqa: TDL191", True),
        ("# noqa because", True),
        ("# devlint: ignore", True),
        ("# devlint: ignore[TDL191]", True),
        ("# devlint: ignore[tdl191] why", True),
        ("# devlint: ignore[probe-safe] why", True),
        ("# devlint: ignore[E501, Probe-Safe]", True),
        ("#devlint:ignore[probe-safe]", True),
        ("# devlint: ignore[TDL1]", False),
        ("# devlint: ignore[probe-unsafe]", False),
        ("# devlint: ignored", False),
        ("# devlint: ignore[]", False),
    ],
)
def test_comment_at_the_end_of_the_line(comment: str, expected: bool) -> None:
    assert silenced(f"x = 1\ny = 2  {comment}\n", 2) is expected
    assert silenced(f"x = 1\ny = 2  {comment}\n", 1) is False


def test_lines_that_belong_together() -> None:
    string = 'x = """\ntext\n"""  # noqa: TDL191\ny = 1\n'
    assert [silenced(string, line) for line in (1, 2, 3, 4)] == [True, True, True, False]
    joined = "x = 1 + \\\n  2  # noqa\ny = 1\n"
    assert [silenced(joined, line) for line in (1, 2, 3)] == [True, True, False]
    brackets = "f(\n  1,  # noqa\n  2,\n)\n"
    assert [silenced(brackets, line) for line in (1, 2, 3, 4)] == [False, True, False, False]
    own = "f(\n  1,\n)  # devlint: ignore[probe-safe]\ng()\n"
    assert [silenced(own, line) for line in (1, 2, 3, 4)] == [True, True, True, False]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(newline: str) -> None:
    text = newline.join(["x = 1  # noqa", "# comment", "y = '''", "''' # noqa: TDL191", "\x0cz = 1", "# noqa", ""])
    assert [silenced(text, line) for line in range(1, 7)] == [True, False, True, True, False, True]


def test_whole_file() -> None:
    assert silenced("x = 1\n  # flake8: noqa\n", 1)
    assert silenced("# flake8: NOQA: E501\nx = 1\n", 2)
    assert not silenced("x = 1  # flake8: no\n", 1)
    assert silenced("x = 1\n# devlint: ignore-file[probe-safe] generated\n", 1)
    assert silenced("# devlint: ignore-file\nx = 1\n", 2)
    assert not silenced("# devlint: ignore-file[TDL192]\nx = 1\n", 2)


def test_text_that_cannot_be_tokenized() -> None:
    assert silenced("x = (\ny = 1  # noqa: TDL191\n", 2)
    assert not silenced("x = (\ny = 1  # noqa: TDL191\n", 1)


_PIECES = st.sampled_from(
    ["# noqa", ": ", ":", "TDL191", "TDL19", "tdl191", "E501", ",", " ", "\\\n", "\n", '"""', "(", ")", "x", "#", "+ 1"]
)


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_PIECES, max_size=14).map("".join))
def test_noqa_is_what_flake8_makes_of_it(text: str) -> None:
    import argparse

    from flake8.processor import FileProcessor
    from flake8.violation import Violation

    text += "\n"
    options = argparse.Namespace(hang_closing=False, indent_size=4, max_line_length=79, max_doc_length=None, verbose=0)
    options.disable_noqa = False
    lines = text.splitlines(keepends=True)
    processor = FileProcessor("a.py", options, lines=list(lines))
    for line in range(1, len(lines) + 1):
        # Where flake8 cannot tokenize, it reads the file again; there is none here, so it is given the line.
        physical = processor.noqa_line_for(line) or lines[line - 1]
        expected = Violation("TDL191", "a.py", line, 1, "message", physical).is_inline_ignored(False)
        assert silenced(text, line) is (expected or processor.should_ignore_file())


def report(cli: Cli, *options: str) -> list[tuple[int, str, str]]:
    rows = json.loads(cli("check", "--output-format=json", *options).out)
    return [(row["location"]["row"], row["code"], row["message"]) for row in rows]


def test_what_silences_nothing_is_reported(cli: Cli, project: Project) -> None:
    lines = [
        "import torch",
        "torch.probe_safe()  # noqa: TDL191",
        "torch.probe_safe()  # noqa: TDL191,TDL192",
        "x = 1  # noqa",
        "x = 1  # noqa: E501",
        "x = 1  # noqa: TDL19",
        "x = 1  # noqa: TDL194",
        "torch.probe_safe()  # devlint: ignore[probe-safe] fine",
        "x = 1  # devlint: ignore[probe-safe] why",
        "x = 1  # devlint: ignore",
        "x = 1  # devlint: ignore[prob-safe]",
        "# devlint: ignore-file[probe-unsafe]",
        "x = 1  # devlint: ignore[TDL901, TDL191]",
        "x = '# noqa: TDL191'",
    ]
    project({"a.py": "\n".join(lines) + "\n"})
    nothing = "nothing of {} is silenced here; take it out"
    assert report(cli) == [
        (3, "TDL901", nothing.format("TDL192")),
        (6, "TDL901", nothing.format("TDL19")),
        (9, "TDL901", nothing.format("probe-safe")),
        (10, "TDL901", "this comment silences nothing; take it out"),
        (11, "TDL901", "no rule is called 'prob-safe', so nothing is silenced"),
        (12, "TDL901", nothing.format("probe-unsafe")),
    ]
    assert report(cli, "--ignore", "TDL901") == []
    assert (7, "TDL901", nothing.format("TDL194")) in report(cli, "--extend-select", "TDL194")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = 1  # noqa: TDL191", "x = 1"),
        ("x = 1\t# noqa:TDL191  ", "x = 1"),
        ("x = 1  # noqa: E501,TDL191", "x = 1  # noqa: E501"),
        ("x = 1  # NOQA:TDL191, E501 TDL192 because", "x = 1  # NOQA: E501 because"),
        ("x = 1  # noqa: TDL191 because", "x = 1  # because"),
        ("x = 1  # noqa: TDL191  # because", "x = 1  # because"),
        ("x = 1  # type: ignore # noqa: TDL191", "x = 1  # type: ignore"),
        ("x = 1  # type: ignore # noqa: TDL191 because", "x = 1  # type: ignore # noqa: TDL191 because"),
        ("x = 1  # devlint: ignore[probe-safe] because", "x = 1"),
        ("x = 1  # devlint: ignore[probe-safe] because  # noqa: E501", "x = 1  # noqa: E501"),
        ("x = 1  # devlint: ignore", "x = 1"),
        ("torch.probe_opt_in()  # devlint: ignore[probe-safe, TDL192]", "torch.probe_opt_in()"),
        (
            "torch.probe_safe()  # devlint: ignore[nonsense, probe-safe]",
            "torch.probe_safe()  # devlint: ignore[probe-safe]",
        ),
        ("x = '# noqa: TDL191'", "x = '# noqa: TDL191'"),
        ("if 1:\n    # noqa: TDL191\n    pass", "if 1:\n    pass"),
    ],
)
def test_what_silences_nothing_is_taken_out(cli: Cli, project: Project, line: str, expected: str) -> None:
    root = project({"a.py": f"import torch\r\n{line}\r\ny = 2"})
    cli("check", "--fix")
    assert (root / "a.py").read_bytes().decode() == f"import torch\r\n{expected}\r\ny = 2"


def test_suppressed_findings_are_not_fixed(cli: Cli, project: Project) -> None:
    text = "import torch\ntorch.probe_safe()  # noqa: TDL191\n"
    root = project({"a.py": text})
    assert cli("check", "--fix").code == 0
    assert (root / "a.py").read_text() == text


def test_files_without_comments_of_ours_are_not_tokenized(project: Project) -> None:
    project({"a.py": "import torch\nx = 1  # noqa\nif torch.cuda.is_available(): pass\n"})
    script = "import tokenize; tokenize.generate_tokens = None; from devlint.cli import main; print(main(['check']))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("All checks passed.\n0\n", "")
