"""Checkpoints: atomic, checked, safe to load, with errors that name what is wrong."""

import os
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from devlint.runtime import load_checkpoint, save_checkpoint
from devlint.runtime.checkpoint import CheckpointError

PLAIN = {
    "nothing": None,
    "number": [1, 2.5, True, 1j, float("inf")],
    "text": ("a", b"b"),
    "tensors": {"x": torch.arange(3), "deep": [torch.ones(2, dtype=torch.bfloat16)]},
    "kinds": [torch.float16, torch.device("cpu"), torch.Size([2, 3])],
    "mappings": [OrderedDict(a=1), Counter("aab"), {3: {1, 2}}],
}


def test_plain_values_come_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "folder" / "a.pt"
    save_checkpoint(file, **PLAIN)
    found = load_checkpoint(file)
    assert torch.equal(found["tensors"]["x"], PLAIN["tensors"]["x"])
    assert found["tensors"]["deep"][0].dtype is torch.bfloat16
    for name in ("nothing", "number", "text", "kinds", "mappings"):
        assert found[name] == PLAIN[name]
    assert os.listdir(file.parent) == ["a.pt"]


def test_objects_are_loaded_and_the_rest_returned(tmp_path: Path) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path / "a.pt", model=model, optimizer=optimizer, epoch=3)
    fresh = torch.optim.AdamW(other.parameters())
    assert load_checkpoint(tmp_path / "a.pt", model=other, optimizer=fresh) == {"epoch": 3}
    assert torch.equal(model.weight, other.weight)
    assert fresh.state_dict()["param_groups"][0]["lr"] == 0.5
    assert torch.equal(fresh.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (lambda: 1, "value is a builtins.function"),
        ({"a": [np.float64(1.0)]}, r"value\['a'\]\[0\] is a numpy.float64"),
        (Path("x"), "value is a pathlib"),
        ({(1, object()): 2}, r"value's key\[1\] is a builtins.object"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, value: Any, place: str) -> None:
    save_checkpoint(tmp_path / "a.pt", value=1)
    with pytest.raises(TypeError, match=rf"save_checkpoint: {place}.*weights_only"):
        save_checkpoint(tmp_path / "a.pt", value=value)
    assert load_checkpoint(tmp_path / "a.pt") == {"value": 1}


def test_all_torch_schedulers_can_be_saved(tmp_path: Path) -> None:
    from torch.optim import lr_scheduler as lr

    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.9)
    made = [
        lr.StepLR(optimizer, 2),
        lr.MultiStepLR(optimizer, [2, 2, 5]),
        lr.CosineAnnealingLR(optimizer, 10),
        lr.CosineAnnealingWarmRestarts(optimizer, 3),
        lr.OneCycleLR(optimizer, 0.1, total_steps=10),
        lr.CyclicLR(optimizer, 0.1, 0.2),
        lr.LambdaLR(optimizer, lambda epoch: 0.9),
        lr.LinearLR(optimizer),
        lr.PolynomialLR(optimizer),
        lr.SequentialLR(optimizer, [lr.ConstantLR(optimizer), lr.ExponentialLR(optimizer, 0.9)], [2]),
    ]
    for scheduler in made:
        save_checkpoint(tmp_path / "a.pt", scheduler=scheduler)
        load_checkpoint(tmp_path / "a.pt", scheduler=scheduler)


def test_every_damage_is_seen_or_harmless(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    values = torch.arange(64.0)
    save_checkpoint(file, values=values - 1, number=1)
    save_checkpoint(file, values=values, number=2)
    content = file.read_bytes()
    seen = 0
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = load_checkpoint(file)
        expected = {1: values - 1, 2: values}[found["number"]]
        assert torch.equal(found["values"], expected), f"byte {place}"
        assert len(caught) == (found["number"] == 1)
        seen += len(caught)
    assert seen > 20
    for size in range(0, len(content), 50):
        file.write_bytes(content[:size])
        with pytest.warns(RuntimeWarning, match="is damaged"):
            assert load_checkpoint(file)["number"] == 1


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    file, previous = tmp_path / "a.pt", tmp_path / "a.pt.previous"
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*a\.pt"):
        load_checkpoint(file)
    save_checkpoint(file, number=1)
    save_checkpoint(file, number=2)
    file.unlink()
    with pytest.warns(
        RuntimeWarning, match=r"checkpoint .*a\.pt is missing; going on from the one before it, .*previous"
    ):
        assert load_checkpoint(file) == {"number": 1}
    previous.write_bytes(b"PK nonsense")
    with pytest.raises(
        CheckpointError, match=r"no checkpoint that can be read: .*a\.pt is missing; .*previous is damaged"
    ):
        load_checkpoint(file)
    file.mkdir()
    with pytest.raises(CheckpointError, match=r"a\.pt cannot be read \(Is a directory\)"):
        load_checkpoint(file)


def test_a_damaged_file_is_not_kept_as_the_previous_one(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    save_checkpoint(file, number=1)
    save_checkpoint(file, number=2)
    file.write_bytes(file.read_bytes()[:100])
    save_checkpoint(file, number=3)
    assert load_checkpoint(file) == {"number": 3}
    assert load_checkpoint(tmp_path / "a.pt.previous") == {"number": 1}


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "link", refuse)
    for number in (1, 2, 3):
        save_checkpoint(tmp_path / "a.pt", number=number)
    assert load_checkpoint(tmp_path / "a.pt") == {"number": 3}
    assert load_checkpoint(tmp_path / "a.pt.previous") == {"number": 2}


class Evil:
    def __reduce__(self) -> Any:
        return print, ("evil",)


def test_foreign_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.pt"
    torch.save({"model": Evil()}, file)
    with pytest.raises(CheckpointError, match="holds more than tensors and plain values, so it is not loaded"):
        load_checkpoint(file)
    assert capsys.readouterr().out == ""
    torch.save([1, 2], file)
    with pytest.raises(CheckpointError, match="holds a list; it was not written by save_checkpoint"):
        load_checkpoint(file)
    save_checkpoint(file, epoch=1)
    with pytest.raises(CheckpointError, match=r"has no model; it has epoch"):
        load_checkpoint(file, model=nn.Linear(2, 2))
    with pytest.raises(
        TypeError, match=r"epoch is a int, which has no load_state_dict.*load_checkpoint\(path\)\['epoch'\]"
    ):
        load_checkpoint(file, epoch=0)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.pt"
    save_checkpoint(file, number=1)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(file, number=2)
    assert load_checkpoint(file) == {"number": 1}
