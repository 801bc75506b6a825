"""``devlint rehearse``: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from devlint.runtime._rehearse.cli import main

TRAIN = """
import sys, torch
model = torch.nn.Linear(4, 2).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(3, 4).to("cuda")).sum()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_clean_program(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train.py", "3"]) == 0
    out = capsys.readouterr().out
    assert "3 optimizer steps" in out and "no device error" in out
    assert "train.py:9: _local_scalar_dense, 3 x" in out


def test_steps_stop_the_program(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--steps", "2", "train.py", "100"]) == 0
    assert "2 optimizer steps" in capsys.readouterr().out


def test_found_error_names_the_users_line(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(TRAIN + "model(torch.randn(3, 4))\n")
    assert main(["train.py", "1"]) == 1
    captured = capsys.readouterr()
    assert "train.py:10: TDL104 Expected all tensors to be on the same device" in captured.out
    assert "_rehearse" not in captured.err and "torch/nn" not in captured.err


def test_json_is_alone_on_stdout(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--format", "json", "train.py", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["clean"] and data["steps"] == 1 and data["transfers"][0]["direction"] == "H2D"


def test_module(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "train", "1"]) == 0
    assert "1 optimizer step," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name a script"),
        (["nowhere.py"], "no such script: nowhere.py"),
        (["--count", "0", "train.py"], "whole number from 1 on"),
    ],
)
def test_refusals(script: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    assert main(arguments) == 2
    assert text in capsys.readouterr().err


def test_a_failure_of_the_programs_own(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("raise KeyError('lr')\n")
    assert main(["train.py"]) == 2
    assert "KeyError: 'lr'" in capsys.readouterr().err
