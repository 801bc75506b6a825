"""The pytest plugin, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

TESTS = """
import torch

def test_good():
    assert torch.cuda.is_available()
    assert (torch.ones(2, device="cuda") + 1).is_cuda

def test_bad():
    torch.ones(2, device="cuda") + torch.ones(2)
"""
FIXTURE = """
import torch

def test_sync(devlint_rehearse):
    torch.ones(1, device="cuda").item()
    assert [sync.line for sync in devlint_rehearse.syncs] == [5]

def test_outside():
    assert not torch.cuda.is_available()
"""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_flag_runs_a_projects_gpu_tests(tmp_path: Path) -> None:
    (tmp_path / "test_gpu.py").write_text(TESTS)
    done = run(tmp_path, "--rehearse")
    assert "1 failed, 1 passed" in done.stdout
    assert "Expected all tensors to be on the same device" in done.stdout


def test_fixture_gives_the_report(tmp_path: Path) -> None:
    (tmp_path / "test_gpu.py").write_text(FIXTURE)
    done = run(tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_plugin_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("import sys\n\ndef test_none():\n    assert 'torch' not in sys.modules\n")
    assert "1 passed" in run(tmp_path).stdout


def test_count_below_one_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--rehearse-count", "0")
    assert done.returncode == 4
    assert "--rehearse-count must be at least 1" in done.stderr
