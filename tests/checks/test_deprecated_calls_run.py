"""Every fix of the 5xx rules, run under torch by every import spelling: what warned or raised no longer does, and what it
gave before it gives still.
"""

import contextlib
import importlib
import io
import warnings
from typing import NamedTuple

import pytest
import torch

from devlint.settings import Settings
from devlint.testing import fixed

WORDS = (
    "deprecat",
    "removed",
    "renamed",
    "no longer",
    "will be",
    "explicitly",
    "now calls",
    "integrated",
    "indexing",
    "copy construct",
)


class Call(NamedTuple):
    """An expression with `{old}` for the deprecated name `owner.name`; `quiet` where torch itself does not warn of it.

    `raises` where the old name is gone: then there is no result to compare with.
    """

    code: str
    owner: str
    name: str
    text: str
    quiet: bool = False
    raises: bool = False


A = "th.tensor([[4.0, 1.0], [1.0, 3.0]])"
V = "th.tensor([1.0, 2.0])"
IMAGE = "th.arange(16.0).reshape(1, 1, 4, 4)"
WEIGHT = "th.nn.Parameter(th.ones(2, 2))"
CALLS = (
    *(Call("TDL504", "torch", f"get_autocast_{legacy}_dtype", "{old}()") for legacy in ("gpu", "cpu", "xla", "ipu")),
    *(
        Call(
            "TDL504",
            "torch",
            f"set_autocast_{legacy}_dtype",
            "{old}(th.bfloat16), th.get_autocast_dtype('" + device + "')",
        )
        for legacy, device in (("gpu", "cuda"), ("cpu", "cpu"), ("xla", "xla"), ("ipu", "ipu"))
    ),
    *(Call("TDL504", "torch", f"is_autocast_{device}_enabled", "{old}()") for device in ("cpu", "xla", "ipu")),
    *(Call("TDL504", "torch", f"set_autocast_{device}_enabled", "{old}(False)") for device in ("cpu", "xla", "ipu")),
    Call("TDL505", "torch", "set_default_tensor_type", "{old}('torch.DoubleTensor')\nth.get_default_dtype()"),
    *(
        Call("TDL508", "torch", f"{kind}Tensor", "{old}(" + data + ")", quiet=True)
        for kind, data in (
            ("Float", "[1, 2.5]"),
            ("Double", "(1, 2)"),
            ("Half", "[1.0] * 3"),
            ("BFloat16", "[[1.0, 2.0], [3.0, 4.0]]"),
            ("Byte", "[-1, 2]"),
            ("Char", "[True, False]"),
            ("Short", "[*(0, 1)]"),
            ("Int", "[4] + [5]"),
            ("Long", "[1.7, 2]"),
            ("Long", "[i for i in (3, 4)]"),
            ("Long", "sorted((2, 1))"),
            ("Bool", "[2, 0]"),
            ("", "[1, 2]"),
            ("", "(3,)"),
            ("", "[]"),
        )
    ),
    Call("TDL508", "torch", "Tensor", "th.set_default_dtype(th.float64), {old}([1, 2])", quiet=True),
    Call("TDL507", "torch", "FloatTensor", "th.arange(3).type({old})", quiet=True),
    Call("TDL507", "torch", "LongTensor", "th.ones(2).type({old})", quiet=True),
    Call("TDL507", "torch", "Tensor", "th.arange(3).type({old})", quiet=True),
    Call("TDL509", "torch.autograd", "Variable", "{old}(th.ones(2)).requires_grad", quiet=True),
    Call("TDL512", "torch.cuda", "memory_cached", "{old}() if th.cuda.is_available() else 0", quiet=True),
    Call("TDL513", "torch", "has_cuda", "{old}"),
    Call("TDL513", "torch", "has_mps", "{old}"),
    Call("TDL513", "torch", "has_cudnn", "{old}"),
    Call("TDL513", "torch", "has_mkldnn", "{old}"),
    Call("TDL517", "torch", "chain_matmul", "{old}(" + f"{A}, {A}, {A}" + ")"),
    Call("TDL517", "torch", "cholesky", "{old}(" + A + ")"),
    Call("TDL517", "torch", "cholesky", "{old}(" + A + ", True)"),
    Call("TDL517", "torch", "cholesky", "{old}(" + A + ", upper=True)"),
    Call("TDL517", "torch", "qr", "tuple({old}(" + A + "))"),
    Call("TDL517", "torch", "qr", "tuple({old}(" + A + "[:, :1], some=False))"),
    Call("TDL517", "torch", "qr", "tuple({old}(" + A + "[:, :1], True))"),
    Call("TDL517", "torch", "ger", "{old}(" + f"{V}, {V}" + ")", quiet=True),
    Call(
        "TDL517",
        "torch",
        "lu_solve",
        "{old}(" + A + ", th.linalg.lu_factor(" + A + ")[0], th.linalg.lu_factor(" + A + ")[1])",
    ),
    Call("TDL517", "torch", "range", "{old}(0, 3)"),
    Call("TDL517", "torch", "range", "{old}(-2, 7, 3)"),
    Call("TDL517", "torch", "range", "{old}(5, -2, -2, dtype=th.int64)"),
    Call("TDL517", "torch", "range", "{old}(3, 3)"),
    Call("TDL517", "torch", "meshgrid", "{old}(th.arange(2), th.arange(3))"),
    Call("TDL517", "torch", "set_deterministic", "{old}(False)", raises=True),
    Call("TDL517", "torch", "is_deterministic", "{old}()", raises=True),
    Call("TDL517", "torch.nn.functional", "upsample", "{old}(" + IMAGE + ", (8, 8))"),
    Call("TDL517", "torch.nn.functional", "upsample", "{old}(" + IMAGE + ", None, 2, 'bilinear', True)"),
    Call("TDL517", "torch.nn.functional", "upsample_nearest", "{old}(" + IMAGE + ", scale_factor=2)"),
    Call("TDL517", "torch.nn.functional", "upsample_bilinear", "{old}(" + IMAGE + ", (6, 6))"),
    Call("TDL517", "torch.nn", "UpsamplingNearest2d", "{old}(scale_factor=2)(" + IMAGE + ")", quiet=True),
    Call("TDL517", "torch.nn", "UpsamplingBilinear2d", "{old}((6, 6))(" + IMAGE + ")", quiet=True),
    Call("TDL517", "torch.nn", "NLLLoss2d", "{old}()(th.ones(1, 2, 2, 2), th.zeros(1, 2, 2, dtype=th.int64))"),
    Call("TDL517", "torch.nn.utils", "clip_grad_norm", "{old}([" + WEIGHT + "], 1.0)"),
    *(
        Call("TDL517", "torch.nn.init", name, "th.manual_seed(0) and {old}(" + WEIGHT + extra + ").detach()")
        for name, extra in (
            ("uniform", ""),
            ("normal", ", 0.0, 2.0"),
            ("constant", ", 3.0"),
            ("eye", ""),
            ("xavier_uniform", ", gain=2.0"),
            ("xavier_normal", ""),
            ("kaiming_uniform", ", a=1.0"),
            ("kaiming_normal", ", mode='fan_out'"),
            ("orthogonal", ""),
            ("sparse", ", sparsity=0.5"),
        )
    ),
    Call("TDL517", "torch.nn.init", "dirac", "{old}(th.nn.Parameter(th.ones(1, 1, 3))).detach()"),
    *(
        Call("TDL517", "functorch", name, "{old}(" + given + ")(" + V + ")")
        for name, given in (
            ("vmap", "th.sin"),
            ("grad", "th.sum"),
            ("grad_and_value", "th.sum"),
            ("jacrev", "th.sin"),
            ("jacfwd", "th.sin"),
            ("functionalize", "th.sin"),
        )
    ),
    Call("TDL517", "functorch", "vjp", "{old}(th.sin, " + V + ")[0]"),
    Call("TDL517", "functorch", "jvp", "{old}(th.sin, (" + V + ",), (" + V + ",))"),
    Call("TDL517", "torch.nn.utils.stateless", "functional_call", "{old}(th.nn.ReLU(), {{}}, (" + V + ",))"),
    Call("TDL517", "torch.utils.checkpoint", "checkpoint", "{old}(th.sin, " + V + ".requires_grad_()).detach()"),
    Call(
        "TDL517",
        "torch.backends.cuda",
        "sdp_kernel",
        "b = th.backends.cuda\nwith {old}(False, True, enable_mem_efficient=False):\n"
        "    state = b.flash_sdp_enabled(), b.math_sdp_enabled(), b.mem_efficient_sdp_enabled(), b.cudnn_sdp_enabled()\nstate",
    ),
    Call("TDL517", "torch.distributed", "reduce_op", "str({old}.SUM)"),
    Call("TDL518", "torch", "tensor", "{old}(th.ones(2), dtype=th.float64)"),
    Call("TDL518", "torch", "tensor", "{old}(" + A + " + 1, requires_grad=True).requires_grad"),
    Call("TDL519", "torch.nn", "MSELoss", "{old}(size_average=False)(" + f"{A}, {A} + 1" + ")"),
    Call("TDL519", "torch.nn", "L1Loss", "{old}(size_average=True, reduce=False)(" + f"{A}, {A} + 1" + ")"),
    Call("TDL519", "torch.nn.functional", "mse_loss", "{old}(" + f"{A}, {A} + 1" + ", reduce=True)"),
    Call("TDL519", "torch.nn.functional", "l1_loss", "{old}(" + f"{A}, {A} + 1" + ", reduction='elementwise_mean')"),
    Call("TDL519", "torch.nn", "Hardtanh", "{old}(min_value=-0.5, max_value=0.5)(" + V + ")"),
    Call("TDL519", "torch.nn.functional", "gumbel_softmax", "th.manual_seed(0) and {old}(" + V + ", 1.0, eps=1e-9)"),
    Call("TDL519", "torch.autograd", "backward", "{old}(" + V + ".requires_grad_(), grad_variables=" + V + ")"),
    Call(
        "TDL519",
        "torch.autograd",
        "grad",
        "(lambda x: {old}(x.sum(), x, only_inputs=False))(" + V + ".requires_grad_())",
    ),
    Call(
        "TDL519",
        "torch.optim.lr_scheduler",
        "StepLR",
        "{old}(th.optim.SGD([" + WEIGHT + "], lr=0.5), 1, verbose=True)",
        raises=True,
    ),
)
SPELLINGS = ("import torch", "import torch as t", "from parent", "from owner", "renamed", "star")


def spell(call: Call, spelling: str) -> tuple[str, str] | None:
    """An import, and the name by it; None where the name cannot be spelled so."""
    root, _, rest = call.owner.partition(".")
    parent, _, last = call.owner.rpartition(".")
    if spelling == "import torch":
        return f"import {call.owner}", f"{call.owner}.{call.name}"
    if spelling == "import torch as t":
        if root != "torch":
            return f"import {root} as t", f"t.{call.name}"
        return "import torch as t", "t." + (f"{rest}." if rest else "") + call.name
    if spelling == "from parent":
        return (f"from {parent} import {last}", f"{last}.{call.name}") if parent else None
    if spelling == "from owner":
        return f"from {call.owner} import {call.name}", call.name
    if spelling == "renamed":
        return f"from {call.owner} import {call.name} as renamed", "renamed"
    # Without a list of its public names, a module hands over whatever has no underscore.
    module = importlib.import_module(call.owner)
    public = getattr(module, "__all__", vars(module))
    return (f"from {call.owner} import *", call.name) if call.name in public else None


def run(code: str) -> tuple[str, list[str]]:
    """What `code` prints, and the deprecations that it warns of; the defaults of torch are put back."""
    out = io.StringIO()
    dtypes = {device: torch.get_autocast_dtype(device) for device in ("cuda", "cpu", "xla", "ipu")}
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
            warnings.simplefilter("always")
            exec(compile(code, "program.py", "exec"), {"__name__": "program"})
    finally:
        torch.set_warn_always(False)
        torch.set_default_dtype(torch.float32)
        for device, dtype in dtypes.items():
            torch.set_autocast_dtype(device, dtype)
    # torch.func compiles with the deprecated torch.jit.script, the first time.
    said = [text for w in caught if "torch.jit" not in (text := str(w.message))]
    return out.getvalue(), [text for text in said if any(word in text for word in WORDS)]


CASES = [
    pytest.param(call, *spelled, id=f"{call.code}-{call.name}-{index}-{spelling}")
    for index, call in enumerate(CALLS)
    for spelling in SPELLINGS
    if (spelled := spell(call, spelling)) is not None
]


@pytest.mark.parametrize(("call", "statement", "name"), CASES)
def test_the_fix_keeps_the_result_and_ends_the_warning(call: Call, statement: str, name: str) -> None:
    *lines, last = call.text.format(old=name).split("\n")
    code = "\n".join((statement, "import torch as th", *lines, f"result = {last}", "print(result)", ""))
    after = fixed(code, Settings(frozenset({call.code})))
    printed, warned = run(after.text)
    assert warned == []
    if call.raises:
        with pytest.raises((AttributeError, ImportError, NameError, TypeError)):
            run(code)
    else:
        before, complained = run(code)
        assert bool(complained) != call.quiet
        assert printed == before
    assert after.remaining == () and after.errors == ()


DISTRIBUTED = {
    "TDL514": "print(th.nn.parallel.DistributedDataParallel(th.nn.Linear(2, 2), broadcast_buffers=True).forward_sync_buffers)",
    "TDL517": (
        "x, y, z = th.ones(2), th.zeros(2), th.zeros(2)\n"
        "dist.all_gather_into_tensor(y, x)\ndist.reduce_scatter_tensor(z, x, op=dist.ReduceOp.SUM)\nprint(y, z)"
    ),
    "TDL519": "print(len(list(th.nn.parallel.DistributedDataParallel(th.nn.Linear(2, 2), check_reduction=True).parameters())))",
}


@pytest.mark.parametrize("code", DISTRIBUTED)
def test_distributed_fixes_keep_the_result_and_end_the_warning(code: str) -> None:
    before = f"import torch as th\nimport torch.distributed as dist\n{DISTRIBUTED[code]}\n"
    after = fixed(before, Settings(frozenset({code})))
    assert after.remaining == () and after.errors == ()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        printed, warned = run(before)
        assert warned
        assert run(after.text) == (printed, [])
    finally:
        torch.distributed.destroy_process_group()
