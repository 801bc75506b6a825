"""The fixes of TDL705, run: the same device where there is nothing or CUDA, and the accelerator where there is another."""

from __future__ import annotations

from typing import Any

import pytest

from devlint.pages import find_page
from devlint.testing import fixed, page_settings

torch = pytest.importorskip("torch")
_PAGE = find_page("TDL705")
_PICKS = [
    fence.code
    for fence in _PAGE.fences()
    if fence.kind == "bad" and "class " not in fence.code and "def " not in fence.code
]


def _device(code: str) -> str:
    names: dict[str, Any] = {}
    exec(code, names)
    return torch.device(names["device"]).type


@pytest.mark.parametrize("code", _PICKS)
@pytest.mark.parametrize("kind", ["cpu", "cuda", "xpu"])
def test_fixed_pick(code: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = code.replace("model = torch.nn.Linear(3, 1).to(device)\n", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: kind == "cuda")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind != "cpu")
    # A torch that is built for an accelerator names it, present or not.
    built_for = torch.device("cuda" if kind == "cpu" else kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: built_for)
    result = fixed(code, page_settings(_PAGE))
    assert _device(code) == (kind if kind == "cuda" else "cpu")
    assert _device(result.text) == (kind if result.applied else _device(code))


def test_every_spelling_of_a_pick_is_run() -> None:
    assert len(_PICKS) >= 6
