"""Helpers and modules that other files of a project define: found in the tree, read, never imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devlint.engine import check_bytes
from devlint.settings import Settings

_UTILS = """\
import torch


def make_mask(n):
    return torch.triu(torch.ones(n, n), diagonal=1)


def make_mask_like(x):
    return torch.ones(x.size(0), device=x.device)


def move(batch, device):
    return [t.to(device) for t in batch]


raise SystemExit("this file is never imported")
"""

_TRAIN = """\
import torch
from {module} import make_mask, make_mask_like


def main(x, device):
    x = x.to(device)
    return x * make_mask_like(x) + make_mask(3)
"""


def _lines(path: Path, code: str) -> list[int]:
    _, findings = check_bytes(str(path), path.read_bytes(), Settings(frozenset((code,))))
    assert not [finding for finding in findings if finding.code == "TDL900"]
    return [finding.span.line for finding in findings if finding.code == code]


def _project(folder: Path, files: dict[str, str]) -> Path:
    (folder / "pyproject.toml").write_text("")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("script", "helper", "module"),
    [
        ("train.py", "utils.py", "utils"),
        ("scripts/train.py", "utils.py", "utils"),
        ("pkg/train.py", "pkg/utils.py", ".utils"),
        ("pkg/sub/train.py", "pkg/utils.py", "..utils"),
        ("train.py", "pkg/common/utils.py", "pkg.common.utils"),
        ("train.py", "utils/__init__.py", "utils"),
    ],
)
def test_a_helper_is_followed_wherever_the_import_finds_it(
    tmp_path: Path, script: str, helper: str, module: str
) -> None:
    _project(tmp_path, {helper: _UTILS, script: _TRAIN.format(module=module)})
    assert _lines(tmp_path / script, "TDL103") == [7]


def test_a_package_that_passes_a_name_on(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .inner import make_mask, make_mask_like\n",
        "pkg/inner.py": _UTILS,
        "train.py": _TRAIN.format(module="pkg"),
    }
    _project(tmp_path, files)
    assert _lines(tmp_path / "train.py", "TDL103") == [7]


def test_a_module_of_another_file_is_on_the_cpu_until_it_is_moved(tmp_path: Path) -> None:
    nets = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x)


class Elsewhere(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.fc = nn.Linear(3, 3).to(device)

    def forward(self, x):
        return self.fc(x)
"""
    train = """\
import torch
from nets import Elsewhere, Net


def main(x, device):
    left, moved, own = Net(), Net().to(device), Elsewhere(device)
    x = x.to(device)
    own(x)
    moved(x)
    return left(x)
"""
    _project(tmp_path, {"nets.py": nets, "train.py": train})
    assert _lines(tmp_path / "train.py", "TDL103") == [10]


def test_without_the_other_file_nothing_is_known(tmp_path: Path) -> None:
    _project(tmp_path, {"train.py": _TRAIN.format(module="utils")})
    assert _lines(tmp_path / "train.py", "TDL103") == []


@pytest.mark.parametrize(
    "broken", ["import torch\ndef make_mask(:\n", "import torch\0", "x" * 10, "import torch\n" * 50_000]
)
def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path, broken: str) -> None:
    _project(tmp_path, {"utils.py": broken, "train.py": _TRAIN.format(module="utils")})
    assert _lines(tmp_path / "train.py", "TDL103") == []


def test_files_that_import_each_other_come_to_an_end(tmp_path: Path) -> None:
    one = "import torch\nfrom two import g\n\n\ndef f(x, device):\n    return g(x.to(device), device)\n"
    two = "import torch\nfrom one import f\n\n\ndef g(x, device):\n    return f(x.to(device), device)\n"
    _project(tmp_path, {"one.py": one, "two.py": two})
    assert _lines(tmp_path / "one.py", "TDL103") == []


def test_cached_findings_know_what_they_stand_on(tmp_path: Path) -> None:
    files = {"utils.py": _UTILS, "train.py": _TRAIN.format(module="utils")}
    files |= {f"other_{number}.py": "import torch\n" for number in range(10)}
    _project(tmp_path, files)

    def run() -> str:
        command = [sys.executable, "-m", "devlint", "check", "--select", "TDL103", "--output-format", "concise", "."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    old = 1_600_000_000
    for path in tmp_path.rglob("*.py"):
        os.utime(path, (old, old))
    assert "train.py:7" in run()
    assert "train.py:7" in run()
    (tmp_path / "utils.py").write_text(_UTILS.replace("torch.ones(n, n)", "torch.ones(n, n, device='cuda')"))
    assert "train.py:7" not in run()
