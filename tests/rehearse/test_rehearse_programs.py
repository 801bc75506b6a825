"""Small programs with one device, AMP or sync mistake each, or none: what CUDA does with each."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from devlint.runtime._rehearse import Report, rehearse  # noqa: E402

PRELUDE = """
import copy, io, threading, warnings
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
D = "cuda"
def mlp(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
"""

OK = {
    "generator": """
g = torch.Generator(device=D).manual_seed(0)
a = torch.randn(3, device=D, generator=g)
g.manual_seed(0)
assert torch.equal(a.cpu(), torch.randn(3, device=D, generator=g).cpu())
""",
    "set_default": """
torch.set_default_device(D)
try:
    x = torch.randn(3)
    assert x.is_cuda
    m = nn.Linear(3, 2)
    m(x).sum().backward()
finally:
    torch.set_default_device(None)
""",
    "save_load": """
m = mlp().to(D)
b = io.BytesIO()
torch.save(m.state_dict(), b)
b.seek(0)
s = torch.load(b)
assert all((v.is_cuda for v in s.values()))
b.seek(0)
s = torch.load(b, map_location='cpu')
assert not any((v.is_cuda for v in s.values()))
b.seek(0)
s = torch.load(b, map_location=D)
m.load_state_dict(s)
""",
    "load_cpu_to_cuda": """
m = mlp()
b = io.BytesIO()
torch.save(m.state_dict(), b)
b.seek(0)
s = torch.load(b, map_location=torch.device(D))
assert all((v.is_cuda for v in s.values()))
""",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to(D)
x = torch.randn(2, 8, device=D, requires_grad=True)
checkpoint(m, x, use_reentrant=False).sum().backward()
checkpoint(m, x, use_reentrant=True).sum().backward()
""",
    "compile": """
torch.compile(mlp().to(D))(torch.randn(2, 8, device=D))
""",
    "streams": """
s = torch.cuda.Stream()
e = torch.cuda.Event(enable_timing=True)
f = torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(s):
    e.record()
    x = torch.randn(3, device=D) * 2
    f.record()
torch.cuda.current_stream().wait_stream(s)
x.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
assert e.elapsed_time(f) >= 0
""",
    "memory": """
x = torch.zeros(1000, device=D)
assert torch.cuda.memory_allocated() >= 4000 and torch.cuda.max_memory_allocated() >= 4000
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
torch.cuda.mem_get_info()
""",
    "rng": """
s = torch.cuda.get_rng_state()
a = torch.rand(3, device=D)
torch.cuda.set_rng_state(s)
assert torch.equal(a.cpu(), torch.rand(3, device=D).cpu())
""",
    "autocast_types": """
x = torch.randn(4, 8, device=D)
m = mlp().to(D)
with torch.autocast('cuda'):
    assert torch.is_autocast_enabled()
    y = m(x)
    assert y.dtype == torch.float16
    assert y.softmax(-1).dtype == torch.float32
    assert y.sum().dtype == torch.float32
    assert F.layer_norm(y, (4,)).dtype == torch.float32
    assert y.exp().dtype == torch.float32
    assert (y @ y.T).dtype == torch.float16
    assert F.cross_entropy(y, torch.zeros(4, dtype=torch.long, device=D)).dtype == torch.float32
    assert F.relu(y).dtype == torch.float16
    assert F.mse_loss(y, y).dtype == torch.float32
    assert y.norm().dtype == torch.float32
    assert y.pow(2).dtype == torch.float32
assert not torch.is_autocast_enabled()
""",
    "bce_logits": """
with torch.autocast('cuda'):
    F.binary_cross_entropy_with_logits(torch.rand(4, device=D), torch.rand(4, device=D))
""",
    "old_amp": """
with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    s = torch.cuda.amp.GradScaler()
    m = mlp().to(D)
    o = torch.optim.Adam(m.parameters())
    with torch.cuda.amp.autocast():
        l = m(torch.randn(2, 8, device=D)).sum()
    s.scale(l).backward()
    s.step(o)
    s.update()
""",
    "sparse": """
(torch.eye(3).to_sparse().to(D) @ torch.ones(3, 2, device=D)).cpu()
torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (2, 2), device=D).to_dense() + torch.ones(2, 2, device=D)
""",
    "channels_last": """
m = nn.Conv2d(3, 4, 3).to(D, memory_format=torch.channels_last)
y = m(torch.randn(1, 3, 8, 8).to(D, memory_format=torch.channels_last))
y.sum().backward()
""",
    "setitem_slice": """
x = torch.zeros(3, device=D)
x[:2] = torch.ones(2)
x[0] = 5.0
x[torch.tensor([0])] = 1.0
""",
    "packed_lstm": """
m = nn.LSTM(4, 5, batch_first=True).to(D)
p = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 4, device=D), torch.tensor([3, 2]), batch_first=True)
o, _ = m(p)
nn.utils.rnn.pad_packed_sequence(o, batch_first=True)[0].sum().backward()
""",
    "deepcopy_buffer": """
b = nn.BatchNorm1d(3).to(D)
c = copy.deepcopy(b)
c(torch.randn(2, 3, device=D))
copy.deepcopy(torch.ones(2, device=D)) + torch.ones(2, device=D)
""",
    "foreach": """
m = mlp().to(D)
o = torch.optim.Adam(m.parameters(), foreach=True)
m(torch.ones(1, 8, device=D)).sum().backward()
o.step()
""",
    "many_optims": """
for O in (torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.ASGD, torch.optim.Rprop):
    m = mlp().to(D)
    o = O(m.parameters())
    for _ in range(2):
        o.zero_grad()
        m(torch.ones(1, 8, device=D)).sum().backward()
        o.step()
""",
    "capturable": """
m = mlp().to(D)
o = torch.optim.Adam(m.parameters(), capturable=True)
m(torch.ones(1, 8, device=D)).sum().backward()
o.step()
""",
    "lbfgs": """
m = mlp().to(D)
o = torch.optim.LBFGS(m.parameters(), max_iter=2)

def c():
    o.zero_grad()
    l = m(torch.ones(1, 8, device=D)).pow(2).sum()
    l.backward()
    return l
o.step(c)
""",
    "inference": """
m = mlp().to(D).eval()
with torch.inference_mode():
    m(torch.ones(2, 8, device=D)).argmax(1).cpu().numpy()
""",
    "encoder_eval": """
m = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).to(D).eval()
with torch.no_grad():
    m(torch.randn(2, 5, 16, device=D))
""",
    "legacy_type": """
x = torch.cuda.FloatTensor([1.0, 2.0])
assert x.is_cuda
y = torch.ones(2).type(torch.cuda.FloatTensor)
x + y
assert torch.ones(2, device=D).type() == 'torch.cuda.FloatTensor'
""",
    "like": """
x = torch.ones(2, device=D)
x + torch.zeros_like(x) + x.new_zeros(2) + x.new_tensor([1.0, 2.0]) + torch.rand_like(x) + torch.full_like(x, 2)
torch.zeros_like(x, device='cpu') + torch.ones(2)
""",
    "interp": """
F.interpolate(torch.ones(1, 1, 4, 4, device=D, requires_grad=True), scale_factor=2, mode='bilinear').sum().backward()
""",
    "ctc": """
F.ctc_loss(torch.randn(5, 2, 4, device=D).log_softmax(-1).requires_grad_(), torch.ones(2, 3, dtype=torch.long, device=D), torch.tensor([5, 5]), torch.tensor([3, 3])).backward()
""",
    "thread": """
import threading
r = []

def f():
    r.append(torch.ones(2, device=D) + torch.ones(2, device=D))
t = threading.Thread(target=f)
t.start()
t.join()
assert r[0].is_cuda
""",
    "scalar_mix": """
torch.ones(2, device=D) * torch.tensor(2.0) + torch.tensor(1)
""",
    "vmap_grad": """
torch.func.vmap(lambda x: (x * 2).sum())(torch.ones(3, 2, device=D))
torch.func.grad(lambda x: (x ** 2).sum())(torch.ones(3, device=D))
""",
    "multinomial": """
torch.multinomial(torch.ones(3, device=D), 2)
torch.bernoulli(torch.rand(3, device=D))
torch.normal(torch.zeros(2, device=D), torch.ones(2, device=D))
""",
    "weightnorm": """
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(D)
m(torch.ones(1, 3, device=D)).sum().backward()
m = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).to(D)
m(torch.ones(1, 3, device=D)).sum().backward()
""",
    "default_dtype64": """
torch.ones(2, dtype=torch.float64, device=D) + 1
""",
}

ERRORS = {
    "gen_cpu_for_cuda": """
torch.randn(3, device=D, generator=torch.Generator())
""",
    "gen_cuda_for_cpu": """
torch.randperm(3, generator=torch.Generator(device=D))
""",
    "gen_normal_": """
torch.zeros(3, device=D).normal_(generator=torch.Generator())
""",
    "default_device_loader": """
with torch.device(D):
    for x in DataLoader(TensorDataset(torch.zeros(8, 2)), shuffle=True):
        pass
""",
    "set_default_loader": """
torch.set_default_device(D)
try:
    for x in DataLoader(TensorDataset(torch.zeros(8, 2)), shuffle=True):
        pass
finally:
    torch.set_default_device(None)
""",
    "load_mapped_cpu_used": """
t = torch.ones(3, device=D)
b = io.BytesIO()
torch.save(t, b)
b.seek(0)
u = torch.load(b, map_location='cpu')
u + t
""",
    "load_assign_cpu": """
m = mlp().to(D)
m.load_state_dict({k: v.cpu() for k, v in m.state_dict().items()}, assign=True)
m(torch.randn(2, 8, device=D))
""",
    "fn_backward_returns_cpu": """
class Fn(torch.autograd.Function):

    @staticmethod
    def forward(c, x):
        return x * 2

    @staticmethod
    def backward(c, g):
        return g.cpu() * 2
Fn.apply(torch.randn(3, device=D, requires_grad=True)).sum().backward()
""",
    "tensor_hook_cpu": """
x = torch.randn(3, device=D, requires_grad=True)
y = x * 2
y.register_hook(lambda g: g.cpu())
(y * 3).sum().backward()
""",
    "compile_cpu_input": """
torch.compile(mlp().to(D))(torch.randn(2, 8))
""",
    "bce_autocast": """
x = torch.rand(4, device=D)
with torch.autocast('cuda'):
    F.binary_cross_entropy(x, x)
""",
    "bceloss_autocast": """
m = mlp().to(D)
with torch.amp.autocast('cuda'):
    nn.BCELoss()(torch.sigmoid(m(torch.randn(2, 8, device=D))), torch.rand(2, 4, device=D))
""",
    "scaler_half_model": """
m = mlp().to(D).half()
o = torch.optim.SGD(m.parameters(), 0.1)
s = torch.amp.GradScaler('cuda')
s.scale(m(torch.randn(2, 8, device=D).half()).sum()).backward()
s.unscale_(o)
""",
    "sparse_mixed": """
torch.eye(3).to_sparse().to(D) @ torch.ones(3, 2)
""",
    "out_cpu": """
torch.add(torch.ones(3, device=D), 1, out=torch.zeros(3))
""",
    "embedding_bag_cpu": """
nn.EmbeddingBag(5, 3).to(D)(torch.tensor([1, 2]), torch.tensor([0]))
""",
    "einsum_mixed": """
torch.einsum('ij,jk', torch.ones(2, 2, device=D), torch.ones(2, 2))
""",
    "setitem_cpu_mask_value": """
x = torch.zeros(3, device=D)
x[x == 0] = torch.ones(3)
""",
    "scatter_cpu_src": """
torch.zeros(3, device=D).scatter_(0, torch.tensor([0], device=D), torch.ones(1))
""",
    "index_add_cpu": """
torch.zeros(3, device=D).index_add_(0, torch.tensor([0]), torch.ones(1, device=D))
""",
    "sdpa_mask_cpu": """
q = torch.randn(1, 2, 4, 8, device=D)
F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(4, 4, dtype=torch.bool))
""",
    "pack_lengths_cuda": """
nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 4, device=D), torch.tensor([3, 2], device=D), batch_first=True)
""",
    "deepcopied_cpu": """
m = copy.deepcopy(mlp())
m(torch.ones(1, 8, device=D))
""",
    "grad_assign": """
p = nn.Parameter(torch.ones(2, device=D))
p.grad = torch.ones(2)
""",
    "inference_mixed": """
m = mlp().to(D).eval()
with torch.inference_mode():
    m(torch.ones(2, 8))
""",
    "type_moves_to_cpu": """
x = torch.ones(2, device=D).type(torch.FloatTensor)
x + torch.ones(2, device=D)
""",
    "data_swap": """
m = nn.Linear(3, 2).to(D)
m.weight.data = m.weight.data.cpu()
m(torch.ones(1, 3, device=D))
""",
    "histogram": """
torch.histogram(torch.ones(3, device=D), 3)
""",
    "long_matmul": """
torch.ones(2, 2, dtype=torch.long, device=D) @ torch.ones(2, 2, dtype=torch.long, device=D)
""",
    "interpolate_grid": """
F.grid_sample(torch.ones(1, 1, 4, 4, device=D), torch.zeros(1, 2, 2, 2))
""",
    "map_numpy": """
import numpy as np
np.asarray(torch.ones(2, device=D))
""",
    "sklearn_like": """
[t.numpy() for t in torch.ones(2, device=D)]
""",
    "detach_numpy": """
torch.ones(2, device=D, requires_grad=True).detach().numpy()
""",
    "mlp_two_devices": """
mlp().to('cuda:0')(torch.ones(1, 8, device='cuda:1'))
""",
    "cdist_mixed": """
torch.cdist(torch.ones(2, 2, device=D), torch.ones(2, 2))
""",
    "bucketize": """
torch.bucketize(torch.ones(2, device=D), torch.ones(2))
""",
    "lerp_": """
torch.ones(2, device=D).lerp_(torch.ones(2), 0.5)
""",
    "cpu_scalar_self_inplace": """
torch.tensor(1.0).add_(torch.ones((), device=D))
""",
}

SYNCS = {
    "synchronize": """
torch.cuda.synchronize()
""",
    "bool": """
x = torch.ones(2, device=D)
if x.sum() > 0:
    pass
""",
    "nonzero": """
torch.ones(2, device=D).nonzero()
""",
    "mask": """
x = torch.ones(2, device=D)
x[x > 0]
""",
    "float": """
float(torch.ones((), device=D))
""",
    "format": """
f'{torch.ones((), device=D):.3f}'
""",
    "unique": """
torch.unique(torch.ones(2, device=D))
""",
    "where": """
torch.where(torch.ones(2, device=D) > 0)
""",
    "one_hot": """
F.one_hot(torch.tensor([0, 1], device=D))
""",
    "allclose": """
torch.allclose(torch.ones(2, device=D), torch.ones(2, device=D))
""",
    "bincount": """
torch.bincount(torch.tensor([1], device=D))
""",
    "copy_d2h": """
torch.zeros(3).copy_(torch.ones(3, device=D))
""",
}


@pytest.fixture
def verdict() -> Callable[[Callable[[], object]], tuple[str, Report, Exception | None]]:
    """Runs a function on two rehearsed GPUs; gives ``ok``, ``sync`` or ``error``, the report and the error."""

    def run(body: Callable[[], object]) -> tuple[str, Report, Exception | None]:
        torch.manual_seed(0)
        error: Exception | None = None
        with_report: list[Report] = []
        try:
            with rehearse("cuda", count=2) as report:
                with_report.append(report)
                body()
        except Exception as raised:
            error = raised
        found = with_report[0]
        return ("error" if error else "sync" if found.syncs else "ok"), found, error

    return run


Run = Callable[[Callable[[], object]], tuple[str, object, "Exception | None"]]


def program(source: str) -> Callable[[], object]:
    code = compile(PRELUDE + source, "program.py", "exec")
    return lambda: exec(code, {"__name__": "program"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OK)
def test_good_program_runs(name: str, verdict: Run) -> None:
    got, report, error = verdict(program(OK[name]))
    assert error is None and got in ("ok", "sync"), error
    assert report.clean


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_mistake_is_found(name: str, verdict: Run) -> None:
    got, report, error = verdict(program(ERRORS[name]))
    assert got == "error" and isinstance(error, (RuntimeError, TypeError, ValueError, NotImplementedError))
    assert [found.file for found in report.mismatches] == ["program.py"]
    assert report.mismatches[0].message in str(error)


@pytest.mark.parametrize("name", SYNCS)
def test_sync_is_counted(name: str, verdict: Run) -> None:
    got, report, _ = verdict(program(SYNCS[name]))
    assert got == "sync" and report.syncs[0].file == "program.py"
