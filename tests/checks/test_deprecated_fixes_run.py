"""The rewritten AMP names, run under torch: the same results as before, and the warning gone."""

import contextlib
import io
import warnings

import pytest
import torch

from devlint.settings import Settings
from devlint.testing import fixed

CODES = frozenset({"TDL501", "TDL502", "TDL503"})
SPELLINGS = {
    "import torch": "torch.cuda.amp.",
    "import torch as t": "t.cuda.amp.",
    "from torch import cuda": "cuda.amp.",
    "from torch.cuda import amp": "amp.",
    "import torch.cuda.amp as amp": "amp.",
    "from torch.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd": "",
    "from torch.cuda.amp import *": "",
}
AUTOCASTS = ("", "False", "True, th.bfloat16", "False, th.float16, False", "dtype=th.bfloat16", "enabled=True")
SCALERS = ("", "1024.0, 2.0, enabled=False", "1024.0, 2.0, 0.5, 1000, True", "init_scale=8.0", "enabled=False")
USE_AUTOCAST = """
context = {old}autocast({arguments})
with context:
    print(th.is_autocast_enabled("cuda"), th.get_autocast_dtype("cuda"), th.is_autocast_cache_enabled())
print(context.device, context.fast_dtype)
"""
USE_SCALER = """
scaler = {old}GradScaler({arguments})
print(scaler.is_enabled(), scaler.state_dict(), scaler.get_scale())
"""
USE_DECORATORS = """
class Double(th.autograd.Function):
    @staticmethod
    @{old}custom_fwd{arguments}
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @{old}custom_bwd
    def backward(ctx, gradient):
        return gradient * 2

x = th.ones(2, requires_grad=True)
y = Double.apply(x).sum()
y.backward()
print(y.item(), x.grad.tolist())
"""
PROGRAMS = (
    *((USE_AUTOCAST, arguments) for arguments in AUTOCASTS),
    *((USE_SCALER, arguments) for arguments in SCALERS),
    *((USE_DECORATORS, arguments) for arguments in ("", "(cast_inputs=th.float32)")),
)


def run(code: str) -> tuple[str, list[str]]:
    """What `code` prints, and the deprecations that it warns of."""
    out = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        exec(compile(code, "program.py", "exec"), {"__name__": "program"})
    return out.getvalue(), [
        str(w.message) for w in caught if issubclass(w.category, (FutureWarning, DeprecationWarning))
    ]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("body", "arguments"), PROGRAMS)
def test_the_fix_keeps_the_results_and_ends_the_warning(
    spelling: str, body: str, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a GPU a scaler disables itself and its arguments would not show.
    if body == USE_SCALER:
        monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    before = f"{spelling}\nimport torch as th\n" + body.format(old=SPELLINGS[spelling], arguments=arguments)
    after = fixed(before, Settings(CODES))
    assert after.remaining == () and after.errors == ()
    printed, warned = run(before)
    assert any("torch.cuda.amp" in text for text in warned)
    assert run(after.text) == (printed, [])
    assert printed
