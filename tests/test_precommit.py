"""The pre-commit hooks, run as pre-commit runs them: their entry with file names appended."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Project

ROOT = Path(__file__).resolve().parent.parent
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
FILES: dict[str, str | bytes] = {
    "pyproject.toml": '[tool.devlint]\nextend-exclude = ["gen"]\n',
    "train.py": "import torch\nif torch.cuda.is_available: pass\n",
    "plain.py": "x = 1\n",
    "gen/a.py": "import torch\nif torch.cuda.is_available: pass\n",
}


def run(hook: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    program, *rest = shlex.split(hook["entry"])
    assert program == "devlint"
    command = [sys.executable, "-m", "devlint", *rest, *hook.get("args", ()), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_there_are_two_hooks() -> None:
    assert [hook["id"] for hook in HOOKS] == ["devlint", "devlint-fix"]
    for hook in HOOKS:
        assert hook["require_serial"] is True
        assert hook["minimum_pre_commit_version"] == "2.9.2"
        assert {"python", "pyi"} <= set(hook["types_or"])


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hook_reports_and_leaves_excluded_files_alone(project: Project, hook: dict[str, Any]) -> None:
    root = project(FILES)
    found = run(hook, "train.py", "plain.py", "gen/a.py")
    assert (found.returncode, found.stderr) == (1, "")
    assert "train.py:2:4" in found.stdout and "gen/a.py" not in found.stdout
    assert (root / "train.py").read_text() == FILES["train.py"]
    assert run(hook, "plain.py", "gen/a.py").returncode == 0


def test_fixing_hook_fails_once_and_then_passes(project: Project) -> None:
    root = project(FILES)
    hook = HOOKS[1]
    assert run(hook, "--unsafe-fixes", "train.py").returncode == 1
    assert (root / "train.py").read_text() == "import torch\nif torch.cuda.is_available(): pass\n"
    assert run(hook, "--unsafe-fixes", "train.py").returncode == 0


def test_our_own_hooks_run_tools_that_are_there() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            program = shlex.split(hook["entry"])[0]
            assert program in ("ruff", "mypy", "python")
