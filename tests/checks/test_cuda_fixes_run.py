"""Fixes of what only CUDA can run, before and after on the rehearsed device: the same shape, dtype, device and values."""

import contextlib
import io
import warnings

import pytest

from devlint.runtime import rehearse
from devlint.settings import Settings
from devlint.testing import fixed

SPELLINGS = {
    "import torch": "torch.cuda.",
    "import torch as t": "t.cuda.",
    "from torch import cuda": "cuda.",
    "import torch.cuda as tc": "tc.",
    "from torch.cuda import FloatTensor, LongTensor, HalfTensor, BoolTensor, DoubleTensor, ByteTensor": "",
    "from torch.cuda import *": "",
}
# Sizes make a tensor of no known values, so only their shape is shown.
MADE = (
    ("{old}FloatTensor(3)", "shape"),
    ("{old}LongTensor(2, 3)", "shape"),
    ("{old}LongTensor([1, 2])", "all"),
    ("{old}HalfTensor([[1.5], [2.5]])", "all"),
    ("{old}BoolTensor([True, False])", "all"),
    ("{old}DoubleTensor([float(i) for i in range(3)])", "all"),
    ("{old}ByteTensor((1, 2))", "all"),
)
CAST = (
    "th.arange(3).type({old}FloatTensor)",
    "th.ones(2, device='cuda').type({old}LongTensor)",
    "(th.arange(3) * 2).type({old}HalfTensor, non_blocking=True)",
    "th.arange(3).type('torch.cuda.FloatTensor')",
)


def run(code: str) -> tuple[str, list[str]]:
    """What `code` prints on the rehearsed device, and the deprecations that it warns of."""
    out = io.StringIO()
    with rehearse("cuda") as report, warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        exec(compile(code, "program.py", "exec"), {"__name__": "program"})
    assert not report.mismatches
    kinds = (FutureWarning, DeprecationWarning, UserWarning)
    return out.getvalue(), [str(each.message) for each in caught if issubclass(each.category, kinds)]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("code", "shown"), MADE)
def test_a_legacy_cuda_tensor_is_made_the_same(spelling: str, code: str, shown: str) -> None:
    values = ", x.tolist()" if shown == "all" else ""
    before = f"{spelling}\nimport torch as th\nx = {code}\nprint(x.shape, x.dtype, x.device{values})\n"
    before = before.format(old=SPELLINGS[spelling])
    after = fixed(before, Settings(frozenset({"TDL506"})))
    assert after.remaining == () and after.errors == ()
    assert run(after.text) == run(before)
    assert "cuda:0" in run(before)[0]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("code", CAST)
def test_a_type_of_cuda_casts_and_moves_the_same(spelling: str, code: str) -> None:
    before = f"{spelling}\nimport torch as th\nx = {code}\nprint(x.shape, x.dtype, x.device, x.tolist())\n"
    before = before.format(old=SPELLINGS[spelling])
    after = fixed(before, Settings(frozenset({"TDL507"})))
    assert after.remaining == () and after.errors == ()
    assert run(after.text) == run(before)
    assert "cuda:0" in run(before)[0]


RENAMED = {
    "import torch": "torch.accelerator.",
    "import torch as t": "t.accelerator.",
    "from torch import accelerator": "accelerator.",
    "from torch.accelerator import current_device_idx, set_device_idx": "",
}


@pytest.mark.parametrize("spelling", RENAMED)
def test_a_renamed_function_of_the_accelerator_gives_the_same(spelling: str) -> None:
    old = RENAMED[spelling]
    before = f"{spelling}\n{old}set_device_idx(0)\nprint({old}current_device_idx())\n"
    after = fixed(before, Settings(frozenset({"TDL515"})))
    assert after.remaining == () and after.errors == ()
    assert run(after.text) == ("0\n", [])
    assert run(before)[0] == "0\n"


VOLATILE = {
    "import torch": "torch.autograd.",
    "from torch import autograd": "autograd.",
    "from torch.autograd import Variable": "",
    "from torch.autograd import Variable as Var": "",
}


@pytest.mark.parametrize("spelling", VOLATILE)
def test_volatile_and_variable_go_without_a_trace(spelling: str) -> None:
    name = "Var" if spelling.endswith("Var") else VOLATILE[spelling] + "Variable"
    before = f"{spelling}\nimport torch as th\nw = th.ones(2, requires_grad=True)\n"
    before += f"y = {name}(th.ones(2), volatile=True) * 2 * w\nprint(y.tolist(), y.requires_grad)\n"
    after = fixed(before, Settings(frozenset({"TDL509", "TDL510"})))
    assert after.remaining == () and after.errors == ()
    assert "volatile" not in after.text
    assert run(after.text)[0] == run(before)[0] == "[2.0, 2.0] True\n"


def test_the_device_to_pin_for_is_ignored_already() -> None:
    before = (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "loader = DataLoader(torch.arange(4.0), 2, pin_memory=True, pin_memory_device='cuda')\n"
        "print([(batch.tolist(), batch.is_pinned()) for batch in loader])\n"
    )
    after = fixed(before, Settings(frozenset({"TDL511"})))
    assert after.remaining == () and after.errors == ()
    printed, warned = run(before)
    assert any("pin_memory_device" in text for text in warned)
    assert run(after.text)[0] == printed
    assert not any("pin_memory_device" in text for text in run(after.text)[1])
