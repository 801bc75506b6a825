"""The fixes of TDL415, run: the evaluation no longer depends on the mode or the batches, and training goes on as before."""

from __future__ import annotations

from typing import Any

import pytest

from devlint.pages import find_page
from devlint.testing import fixed, page_settings

torch = pytest.importorskip("torch")
_PAGE = find_page("TDL415")

_EVALUATION = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))


def evaluate(val_loader):
    found = []
    with torch.no_grad():
        for x in val_loader:
            found.append(net(x))
    return torch.cat(found)
"""
_TRAINING = """

def step(x, optimizer):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
"""


def _run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(code, names)
    return names


def _fixed(code: str) -> str:
    result = fixed(code, page_settings(_PAGE))
    assert [finding.code for finding in result.applied] == ["TDL415"]
    assert not result.remaining
    return result.text


def test_figures_no_longer_differ_with_the_batches() -> None:
    data = torch.arange(24.0).reshape(8, 3)
    before, after = _run(_EVALUATION), _run(_fixed(_EVALUATION))
    assert not torch.equal(before["evaluate"](data.split(4)), before["evaluate"](data.split(2)))
    # BLAS may sum batches of another size in another order.
    torch.testing.assert_close(after["evaluate"](data.split(4)), after["evaluate"](data.split(2)))


def test_batch_statistics_no_longer_learn_from_the_evaluation() -> None:
    data = torch.arange(24.0).reshape(8, 3).split(4)
    for code, moves in ((_EVALUATION, True), (_fixed(_EVALUATION), False)):
        names = _run(code)
        names["evaluate"](data)
        assert bool(names["net"][1].running_mean.any()) is moves


@pytest.mark.parametrize(("code", "training"), [(_EVALUATION, False), (_EVALUATION + _TRAINING, True)])
def test_mode_is_restored_where_the_file_trains(code: str, training: bool) -> None:
    names = _run(_fixed(code))
    names["evaluate"]([torch.ones(2, 3)])
    assert names["net"].training is training
