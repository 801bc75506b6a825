"""The fixes of TDL305 and TDL310, run without an accelerator: the loader does not warn, and gives the same batches."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from devlint.pages import find_page
from devlint.testing import fixed, page_settings

torch = pytest.importorskip("torch")

_AT_HAND = """\
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader([1.0, 2.0, 3.0], batch_size=2, pin_memory=True)
"""
_ASKED = _AT_HAND.replace("device = torch.device(", "device = (")
_ACCELERATOR = _AT_HAND.replace(
    '"cuda" if torch.cuda.is_available() else "cpu"',
    'torch.accelerator.current_accelerator(True) or torch.device("cpu")',
)


def _batches(code: str) -> tuple[list[Any], list[str]]:
    names: dict[str, Any] = {}
    exec(code, names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = [batch.tolist() for batch in names["loader"]]
    return batches, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("code", [_AT_HAND, _ASKED, _ACCELERATOR])
def test_fixed_loader_does_not_warn(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    result = fixed(code, page_settings(find_page("TDL305")))
    assert [finding.code for finding in result.applied] == ["TDL305"]
    batches, told = _batches(code)
    assert any("no accelerator is found" in text for text in told)
    assert _batches(result.text) == (batches, [])


_PAGEABLE = (
    _AT_HAND.replace(", pin_memory=True", "")
    + """\

class Model:
    def __call__(self, x):
        return x


def use(model):
    for x in loader:
        model(x.to(device))
"""
)


@pytest.mark.parametrize("code", [_PAGEABLE, _PAGEABLE.replace("batch_size=2", "batch_size=2, pin_memory=False")])
def test_pinned_loader_gives_the_same(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = fixed(code, page_settings(find_page("TDL310")))
    assert "TDL310" in [finding.code for finding in result.applied]
    assert 'pin_memory=device.type != "cpu"' in result.text
    assert _batches(result.text) == _batches(code) == ([[1.0, 2.0], [3.0]], [])
