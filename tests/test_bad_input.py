"""What bad input gets: a clear line each, the other files still done, and no traceback."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Outcome, Project

from devlint import runner
from devlint.findings import FileResult
from devlint.options import FORMATS

GOOD = "import torch\ntorch.probe_safe()\n"
OTHER = "z.py:2:1: TDL191 [*] `probe_safe` is a probe"

pytestmark = pytest.mark.usefixtures("probe")


def check(cli: Cli, *argv: str) -> Outcome:
    return cli("check", "--output-format=concise", *(argv or ["."]))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"import torch\nx = (\n", "a.py:2:5: TDL902 syntax error: "),
        (b"import torch\nfor x in y\n    pass\n", "a.py:2:11: TDL902 syntax error: "),
        (b"import torch\nif x:\n\ty\n        z\n", "a.py:4:"),
        (b"import torch\n\0", "a.py:2:1: TDL902 the file contains NUL bytes"),
        ("import torch\n".encode("utf-16"), "a.py:1:1: TDL902 the file contains NUL bytes"),
        (b"import torch\n\nx = '\xe9'\n", "a.py:3:1: TDL902 cannot decode the file as utf-8"),
        (b"# coding: no-such\nimport torch\n", "a.py:1:1: TDL902 unknown encoding: no-such"),
        (b"\xef\xbb\xbf# coding: latin-1\nimport torch\n", "a.py:1:1: TDL902 encoding problem"),
        (b"import torch\nx = " + b"[" * 1000 + b"]" * 1000 + b"\n", "a.py:2:"),
        (b"import torch\nx = " + b"[" * 150 + b"]" * 150 + b"\n", None),
        (b"import torch\nx = " + b"-" * 100_000 + b"1\n", "a.py:"),
    ],
)
def test_what_cannot_be_parsed_is_tdl902(cli: Cli, project: Project, content: bytes, line: str | None) -> None:
    project({"a.py": content, "z.py": GOOD})
    found = check(cli)
    assert (found.code, found.err) == (1, "")
    lines = found.out.splitlines()
    assert lines[-3] == OTHER
    if line is None:
        assert len(lines) == 3
    else:
        assert len(lines) == 4 and "TDL902" in lines[0] and lines[0].startswith(line)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"# torch", b"\x0c\n", b"torch\\"])
def test_next_to_nothing(cli: Cli, project: Project, content: bytes) -> None:
    project({"a.py": content})
    found = check(cli)
    assert (found.code, found.err) == ((1 if content.endswith(b"\\") else 0), "")


def test_a_large_file_is_checked(cli: Cli, project: Project) -> None:
    body = 'def f{0}(x):\n    """{1}"""\n    y = x + {0}\n    return [y, {0}]\n\n\n'
    words = "some words to fill the file with, line by line\n    " * 20
    text = "import torch\n" + "".join(body.format(number, words) for number in range(2_000)) + "torch.probe_safe()\n"
    assert len(text) > 2_000_000
    project({"a.py": text})
    found = check(cli)
    assert found.out.splitlines()[0].endswith("TDL191 [*] `probe_safe` is a probe")


def test_missing_paths_do_not_stop_the_others(cli: Cli, project: Project) -> None:
    project({"z.py": GOOD})
    found = check(cli, "nix.py", "z.py", "nix")
    assert found.code == 2
    assert found.err == "devlint: nix.py: no such file or folder\ndevlint: nix: no such file or folder\n"
    assert found.out.splitlines()[0] == OTHER


def test_a_path_with_a_nul(cli: Cli, project: Project) -> None:
    project({"z.py": GOOD})
    found = check(cli, "a\0.py", "z.py")
    assert (found.code, found.err) == (2, "devlint: 'a\\x00.py': not a path\n")


def test_a_folder_with_a_suffix_is_a_folder(cli: Cli, project: Project) -> None:
    project({"pkg.py/z.py": GOOD, "empty.py/readme.txt": ""})
    assert check(cli).out.startswith(f"pkg.py/{OTHER}")
    found = check(cli, "empty.py")
    assert (found.code, found.err) == (0, "devlint: no Python files to check in empty.py\n")


def test_dangling_and_circular_links(cli: Cli, project: Project) -> None:
    root = project({"z.py": GOOD})
    (root / "a.py").symlink_to("gone.py")
    found = check(cli)
    assert found.err == "devlint: a.py: a link to 'gone.py', which does not exist; left out\n"
    assert (found.code, found.out.splitlines()[0]) == (1, OTHER)
    assert check(cli, "a.py") == (
        2,
        "",
        "devlint: a.py: a link to 'gone.py', which does not exist\n",
    )
    (root / "a.py").unlink()
    (root / "a.py").symlink_to("a.py")
    found = check(cli, "a.py", "z.py")
    assert found.code == 2
    assert found.err.startswith("devlint: a.py: cannot be read: ") and found.err.count("\n") == 1


def test_links_are_checked_once(cli: Cli, project: Project) -> None:
    root = project({"z.py": GOOD, "elsewhere/y.txt": GOOD})
    (root / "a.py").symlink_to("z.py")
    (root / "b.py").symlink_to("elsewhere/y.txt")
    (root / "loop").symlink_to(".")
    assert [line.split(":")[0] for line in check(cli).out.splitlines()[:-2]] == ["b.py", "z.py"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_that_is_no_text(cli: Cli, project: Project, format: str) -> None:
    root = project({})
    name = os.fsdecode(b"\xff \x22.py")
    (root / name).write_text(GOOD)
    found = cli("check", "--output-format", format, "--output-file", "report", "--jobs=1")
    assert (found.code, found.out, found.err) == (1, "", "")
    assert b"TDL191" in (root / "report").read_bytes()
    assert cli("check", "--output-format", format).code == 1
    assert cli("check", "--write-baseline", "known").code == 0
    assert cli("check", "--baseline", "known").code == 0


def test_pipes_and_sockets_in_a_folder_are_left_alone(cli: Cli, project: Project) -> None:
    root = project({"z.py": GOOD})
    os.mkfifo(root / "a.py")
    assert check(cli).out.splitlines()[0] == OTHER


def test_an_unreadable_file(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"a.py": GOOD, "z.py": GOOD})
    genuine = open

    def refuse(path: str, *arguments: object, **keywords: object) -> object:
        if str(path).endswith("a.py"):
            raise PermissionError(13, "Permission denied", path)
        return genuine(path, *arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refuse)
    found = check(cli)
    assert (found.code, found.err) == (2, "devlint: a.py: permission denied; make it readable, or exclude it\n")
    assert found.out.splitlines()[0] == OTHER


def test_an_unreadable_folder(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"sub/a.py": GOOD, "z.py": GOOD})
    genuine = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return genuine(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = check(cli)
    assert (found.code, found.err) == (2, "devlint: sub: permission denied; make it readable, or exclude it\n")
    assert found.out.splitlines()[0] == OTHER


def test_a_notebook_is_refused(cli: Cli, project: Project) -> None:
    project({"a.ipynb": "{}", "z.py": GOOD})
    found = check(cli, "a.ipynb", "z.py")
    assert found.code == 2
    assert found.err.startswith("devlint: a.ipynb: notebooks are not supported")
    assert found.out.splitlines()[0] == OTHER


def test_a_failing_rule_is_tdl900_on_that_file(cli: Cli, project: Project) -> None:
    project({"a.py": "import torch\ntorch.probe_fails()\n", "z.py": GOOD})
    found = check(cli)
    assert found.code == 1
    first, second, *_ = found.out.splitlines()
    assert first.startswith(
        "a.py:1:1: TDL900 TDL191, TDL192, TDL193, TDL194 failed on this file with ZeroDivisionError"
    )
    assert second == OTHER
    assert not any("TDL900" in line for line in check(cli, "--ignore", "TDL900").out.splitlines())


def test_a_failing_engine_is_tdl900_too(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"a.py": GOOD})
    monkeypatch.setattr("devlint.engine.split_units", lambda source, tree: 1 / 0)
    found = check(cli)
    assert found.out.startswith("a.py:1:1: TDL900 devlint failed on this file with ZeroDivisionError")


@pytest.mark.parametrize(
    "text",
    [
        b"import torch\r\n\r\ntorch.probe_safe()\r\n",
        b"import torch\rtorch.probe_safe()\r",
        b"import torch\r\ntorch.probe_safe()\nx = 1\r",
        b"\xef\xbb\xbfimport torch\ntorch.probe_safe()\n",
        b"# -*- coding: latin-1 -*-\nimport torch\nx = '\xe9'; torch.probe_safe()\n",
        b"\x0cimport torch\n\x0c\ntorch.probe_safe()\n\x0c",
        b"\x0cimport torch\nif 1:\n\x0c    torch.probe_safe()\n  \x0c    torch.probe_safe()\n",
        b"import torch\n\ttry_ = '''\r\n\x0b\x1c\xc2\x85\xe2\x80\xa8'''\n".replace(b"\ttry_", b"x")
        + b"torch.probe_safe()  \n\n\n",
        "import torch\nx = '中文'; torch.probe_safe()  # 中文".encode(),
    ],
)
def test_a_fix_keeps_every_other_byte(cli: Cli, project: Project, text: bytes) -> None:
    root = project({"a.py": text})
    (root / "a.py").chmod(0o751)
    assert check(cli, "--fix").code == 0
    assert (root / "a.py").read_bytes() == text.replace(b"probe_safe", b"probed")
    assert (root / "a.py").stat().st_mode & 0o7777 == 0o751


def test_a_fix_goes_through_links(cli: Cli, project: Project) -> None:
    root = project({"real/a.txt": GOOD})
    (root / "a.py").symlink_to("real/a.txt")
    assert check(cli, "--fix").code == 0
    assert (root / "a.py").is_symlink()
    assert "probed" in (root / "real/a.txt").read_text()


def test_a_fix_that_breaks_the_syntax_is_left_out_and_named(cli: Cli, project: Project) -> None:
    text = "import torch\ntorch.probe_broken()\ntorch.probe_safe()\n"
    root = project({"a.py": text})
    found = check(cli, "--fix")
    assert found.code == 2
    assert found.err == "devlint: a.py: the fix of TDL193 would break the syntax; it was left out\n"
    assert (root / "a.py").read_text() == text.replace("probe_safe", "probed")


def test_a_fix_that_cannot_be_written(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project({"a.py": GOOD, "z.py": GOOD})
    genuine = os.replace

    def refuse(source: str, target: str | Path) -> None:
        if str(target).endswith("a.py"):
            raise PermissionError(13, "Permission denied", target)
        genuine(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    found = check(cli, "--fix")
    assert found.code == 2
    assert found.err == "devlint: a.py: cannot be written: Permission denied; its fixes were not written\n"
    assert found.out.startswith("a.py:2:1: TDL191")
    assert (root / "a.py").read_text() == GOOD
    assert "probed" in (root / "z.py").read_text()
    assert sorted(os.listdir(root)) == ["a.py", "z.py"]


def test_a_file_that_changes_meanwhile_is_left_alone(
    cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project({"a.py": GOOD})
    genuine = runner.check_data

    def edit(*arguments: Any, **keywords: Any) -> FileResult | None:
        (root / "a.py").write_text("# edited\n")
        return genuine(*arguments, **keywords)

    monkeypatch.setattr(runner, "check_data", edit)
    found = check(cli, "--fix")
    assert found.code == 2
    assert "a.py: changed while devlint was working on it; nothing was written" in found.err
    assert (root / "a.py").read_text() == "# edited\n"


def test_a_dying_process_costs_one_file_only(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"m{number}.py" for number in range(8)]
    project(dict.fromkeys(names, GOOD))
    genuine = runner.check_file
    parent = os.getpid()

    def die(path: str, *arguments: Any, **options: Any) -> Any:
        if path == "m3.py" and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return genuine(path, *arguments, **options)

    monkeypatch.setattr(runner, "check_file", die)
    found = check(cli, "--jobs", "3")
    assert found.code == 2
    assert found.err.startswith("devlint: m3.py: checking it ended the process (signal SIGKILL)")
    assert [line.split(":")[0] for line in found.out.splitlines()[:-2]] == [n for n in names if n != "m3.py"]


def test_jobs_change_nothing(cli: Cli, project: Project) -> None:
    project({f"d{number % 3}/m{number}.py": GOOD * (number % 4 + 1) for number in range(20)})
    for format in ("json", "full", "concise"):
        reports = [cli("check", "--output-format", format, "--jobs", jobs) for jobs in ("1", "2", "7", "100")]
        assert len(set(reports)) == 1


def test_a_bug_in_devlint_is_one_line(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"a.py": GOOD})
    monkeypatch.setattr("devlint.files.find", lambda paths, configs: 1 / 0)
    found = cli("check")
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert found.err.startswith("devlint: internal error: ZeroDivisionError: division by zero; please report it")
    monkeypatch.setenv("DEVLINT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("check")
