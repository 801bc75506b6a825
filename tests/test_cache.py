"""The cache: the same results with less work, whatever happens to its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli, Project

from devlint import engine
from devlint.cache import FOLDER
from devlint.options import FORMATS

pytestmark = pytest.mark.usefixtures("probe")

NAMES = [f"m{number}.py" for number in range(10)]
CODE = "import torch\n\ntorch.probe_safe(1)\ntorch.probe_unsafe(ä)\n"


@pytest.fixture
def aged(project: Project) -> Path:
    """Ten files that are old enough for their time to be trusted."""
    root = project({name: CODE if number % 2 else "x = 1\n" for number, name in enumerate(NAMES)})
    for name in NAMES:
        os.utime(root / name, (1_000_000_000, 1_000_000_000))
    return root


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that the engine was asked about."""
    asked: list[str] = []
    genuine = engine.check_bytes

    def check(path: str, *arguments: object) -> object:
        asked.append(os.path.basename(path))
        return genuine(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "check_bytes", check)
    return asked


def cache_files(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.txt"))


@pytest.mark.parametrize("format", FORMATS)
def test_a_warm_run_says_the_same_and_checks_nothing(cli: Cli, aged: Path, checked: list[str], format: str) -> None:
    cold = cli("check", "--output-format", format)
    assert len(checked) == 5
    checked.clear()
    assert cli("check", "--output-format", format) == cold
    assert checked == []
    assert cli("check", "--output-format", format, "--no-cache") == cold
    assert len(checked) == 5


def test_only_what_changed_is_checked(cli: Cli, aged: Path, checked: list[str]) -> None:
    cli("check")
    checked.clear()
    (aged / "m1.py").write_text(CODE.replace("probe_safe", "probe_opt_in"))
    os.utime(aged / "m3.py", (1_100_000_000, 1_100_000_000))
    (aged / "m5.py").write_text(CODE.replace("(1)", "(2)"))
    os.utime(aged / "m5.py", (1_000_000_000, 1_000_000_000))
    found = cli("check", "--output-format=concise")
    assert checked == ["m1.py"]
    assert "m1.py:3:1" not in found.out and "m3.py:3:1: TDL191" in found.out
    checked.clear()
    cli("check", *NAMES[:3])
    assert checked == []


def test_a_young_file_is_judged_by_its_content(cli: Cli, project: Project, checked: list[str]) -> None:
    root = project(dict.fromkeys(NAMES, CODE))
    status = (root / "m1.py").stat()
    cli("check")
    checked.clear()
    (root / "m1.py").write_text(CODE.replace("(1)", "(2)"))
    os.utime(root / "m1.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    cli("check")
    assert checked == ["m1.py"]


def test_another_selection_is_another_cache(cli: Cli, aged: Path, checked: list[str]) -> None:
    cli("check")
    assert "TDL191" not in cli("check", "--ignore", "TDL191").out
    assert "TDL191" in cli("check").out
    assert len(checked) == 10
    assert len(cache_files(aged)) == 2
    for number in range(12):
        cli("check", "--target-torch", f"2.{number}")
    assert len(cache_files(aged)) <= 8


def test_fixing_goes_past_the_cache(cli: Cli, aged: Path) -> None:
    cli("check")
    assert cli("check", "--fix", "--unsafe-fixes").code == 0
    assert "probed" in (aged / "m1.py").read_text()
    assert cli("check").code == 0


def test_a_damaged_cache_is_a_miss(cli: Cli, aged: Path) -> None:
    cold = cli("check", "--output-format=json")
    [file] = cache_files(aged)
    content = file.read_bytes()
    damaged = [content[: len(content) * part // 7] for part in range(7)]
    damaged += [content.replace(b"TDL191", b"TDL192"), content.replace(b"[[", b"[["[:1]), b"\0" * 100, b"\xff\t" * 99]
    damaged += [content.replace(b"\t-\n", b"\t[]\n"), content.replace(b"probe-safe", b"\xff\xfe"), b"\n\n" + content]
    for text in damaged:
        file.write_bytes(text)
        assert cli("check", "--output-format=json") == cold


def test_where_the_cache_cannot_be_kept_nothing_is_said(cli: Cli, aged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aged / FOLDER).write_text("a file where the folder would be")
    cold = cli("check")
    assert (cold.code, cold.err) == (1, "")
    (aged / FOLDER).unlink()

    def refuse(*arguments: object, **keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "makedirs", refuse)
    assert cli("check") == cold
    assert not (aged / FOLDER).exists()


def test_a_wrong_configuration_is_never_accepted(cli: Cli, aged: Path) -> None:
    for _ in range(2):
        assert cli("check", "--select", "TDL19x").code == 2
    (aged / "pyproject.toml").write_text('[tool.devlint]\nselect = ["TDL191"]\n')
    assert cli("check").code == 1
    (aged / "pyproject.toml").write_text('[tool.devlint]\nselect = ["TDL19x"]\n')
    assert cli("check").code == 2


def test_internal_errors_are_not_kept(cli: Cli, aged: Path, checked: list[str]) -> None:
    (aged / "m1.py").write_text("import torch\ntorch.probe_fails()\n")
    assert "TDL900" in cli("check").out
    checked.clear()
    assert "TDL900" in cli("check").out
    assert checked == ["m1.py"]


def test_a_run_over_a_plain_file_leaves_no_trace(cli: Cli, project: Project) -> None:
    root = project({"a.py": "x = 1\n"})
    cli("check")
    assert os.listdir(root) == ["a.py"]


def test_the_cache_is_kept_out_of_git_and_of_no_cache_runs(cli: Cli, aged: Path) -> None:
    cli("check", "--no-cache")
    assert not (aged / FOLDER).exists()
    cli("check")
    assert (aged / FOLDER / ".gitignore").read_text().endswith("\n*\n")


def test_clean_removes_it(cli: Cli, aged: Path) -> None:
    cli("check")
    assert cli("clean") == (0, "", f"devlint: removed {aged / FOLDER}\n")
    assert not (aged / FOLDER).exists()
    assert cli("clean", ".") == (0, "", f"devlint: there is no cache in {aged}\n")
    assert cli("clean", "a", "b").code == 2


def test_several_runs_at_once(project: Project) -> None:
    root = project(dict.fromkeys(NAMES, "import torch\nif torch.cuda.is_available: pass\n"))
    command = [sys.executable, "-m", "devlint", "check", "--output-format=concise"]
    outputs = set()
    for _ in range(2):
        runs = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) for _ in range(4)]
        outputs.update(run.communicate()[0] for run in runs)
    assert len(outputs) == 1
    assert len(cache_files(root)) == 1
    assert len(cache_files(root)[0].read_text().splitlines()) == len(NAMES)
