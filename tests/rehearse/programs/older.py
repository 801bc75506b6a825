"""Older ways to write device code, and less common ones."""

import contextlib
import copy
import warnings
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset, TensorDataset

D = "cuda"


def variables_by_cuda():
    x = Variable(torch.randn(2, 3)).cuda()
    y = Variable(torch.LongTensor([0, 1])).cuda()
    model = nn.Linear(3, 2).cuda()
    F.cross_entropy(model(x), y).backward()


def variables_half_moved():
    x = Variable(torch.randn(2, 3).cuda())
    y = Variable(torch.LongTensor([0, 1]))
    nn.CrossEntropyLoss()(nn.Linear(3, 2).cuda()(x), y)  # raises RuntimeError: same device


def typed_constructors():
    a = torch.cuda.FloatTensor(2, 3).fill_(1.0)
    b = torch.cuda.LongTensor([1, 2])
    assert a.is_cuda and b.is_cuda and b.dtype is torch.int64 and a.type() == "torch.cuda.FloatTensor"
    assert torch.ones(2).type("torch.cuda.FloatTensor").is_cuda
    assert isinstance(a, torch.cuda.FloatTensor) and not isinstance(torch.ones(1), torch.cuda.FloatTensor)
    Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    Tensor(np.ones(3)) + a[0]


def typed_constructor_of_the_host():
    torch.FloatTensor([1.0, 2.0]) + torch.ones(2, device=D)  # raises RuntimeError: two devices


def legacy_new():
    x = torch.ones(3, device=D)
    assert x.new(2).is_cuda and x.new([1.0, 2.0]).is_cuda and x.new_empty(1).is_cuda
    x.data.new(x.size()).zero_() + x


def type_as_another():
    x = torch.ones(3, device=D)
    torch.arange(3).type_as(x) + x
    torch.arange(3).float() + x  # raises RuntimeError: two devices


def device_by_get_device():
    x = torch.ones(3, device=D)
    torch.zeros(3, device=x.get_device()) + x
    torch.zeros(3).to(x.get_device()) + x
    torch.zeros(3).cuda(x.get_device()) + x


def is_cuda_flags():
    model = nn.Linear(3, 2).to(D)
    assert next(model.parameters()).is_cuda
    x = torch.ones(1, 3)
    if next(model.parameters()).is_cuda:
        x = x.cuda()
    model(x)


@dataclass
class Batch:
    """Rows, labels and a weight."""

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor

    def to(self, device):
        return Batch(self.x.to(device), self.y.to(device), self.weight)


def batch_object_forgets_a_field():
    batch = Batch(torch.randn(2, 3), torch.tensor([0, 1]), torch.ones(2)).to(D)
    loss = F.cross_entropy(nn.Linear(3, 2).to(D)(batch.x), batch.y, reduction="none")
    (loss * batch.weight).mean()  # raises RuntimeError: two devices


def namedtuple_moved_by_hand():
    Pair = namedtuple("Pair", "x y")
    pair = Pair(torch.randn(2, 3), torch.tensor([0, 1]))
    pair = Pair(*(t.to(D) for t in pair))
    F.cross_entropy(nn.Linear(3, 2).to(D)(pair.x), pair.y)


def keyword_inputs():
    class Net(nn.Module):
        def forward(self, *, ids, mask=None):
            return ids * mask

    Net().to(D)(ids=torch.ones(2, device=D), mask=torch.ones(2))


keyword_inputs.expects = ("RuntimeError", "two devices", "return ids * mask")


def moved_in_place_by_data():
    x = torch.randn(3)
    x.data = x.data.to(D)
    x + torch.ones(3, device=D)


def state_kept_in_a_list():
    layers = [nn.Linear(3, 3) for _ in range(2)]
    for layer in layers:
        layer.to(D)
    x = torch.randn(1, 3, device=D)
    for layer in layers:
        x = layer(x)


def apply_moves_nothing():
    model = nn.Sequential(nn.Linear(3, 3))
    model.apply(lambda module: module.float())
    model(torch.randn(1, 3, device=D))  # raises RuntimeError: same device


def initialised_on_the_device():
    model = nn.Sequential(nn.Linear(3, 3), nn.Conv1d(3, 2, 1), nn.Embedding(4, 2)).to(D)
    for module in model:
        nn.init.xavier_uniform_(module.weight)
        nn.init.orthogonal_(module.weight.view(module.weight.shape[0], -1))
        nn.init.trunc_normal_(module.weight, std=0.02)  # syncs
        nn.init.kaiming_normal_(module.weight)


def frozen_and_unfrozen():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).to(D)
    model[0].requires_grad_(False)
    model(torch.randn(1, 3, device=D)).sum().backward()
    assert model[0].weight.grad is None and model[1].weight.grad.is_cuda
    torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1).step()


def gradients_read_and_scaled():
    model = nn.Linear(3, 2).to(D)
    model(torch.randn(1, 3, device=D)).sum().backward()
    norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5
    for p in model.parameters():
        p.grad.data.clamp_(-1, 1)
        p.grad.div_(norm + 1e-6)
    norms = [p.grad.norm().item() for p in model.parameters()]  # syncs
    assert norms


def gradients_from_the_host():
    model = nn.Linear(3, 2).to(D)
    host = copy.deepcopy(model).cpu()  # syncs
    host(torch.randn(1, 3)).sum().backward()
    for p, q in zip(model.parameters(), host.parameters(), strict=True):
        p.grad = q.grad.to(p.device)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def weights_copied_across():
    model, host = nn.Linear(3, 2).to(D), nn.Linear(3, 2)
    for p, q in zip(model.parameters(), host.parameters(), strict=True):
        p.data.copy_(q.data)
        q.data.copy_(p.data)  # syncs
    host.load_state_dict(model.state_dict())  # syncs


def weights_averaged_across():
    model, host = nn.Linear(3, 2).to(D), nn.Linear(3, 2)
    for p, q in zip(model.parameters(), host.parameters(), strict=True):
        q.data = 0.9 * q.data + 0.1 * p.data  # raises RuntimeError: two devices


def flattened_weights():
    layer = nn.LSTM(3, 4, num_layers=2).to(D)
    layer.flatten_parameters()
    layer(torch.randn(2, 1, 3, device=D))[0].sum().backward()


def positions_up_to_a_device_number():
    lengths = torch.tensor([2, 4], device=D)
    torch.arange(lengths.max())  # syncs


def sizes_from_a_device_tensor():
    sizes = torch.tensor([2, 3], device=D)
    torch.randn(5, device=D).split(sizes.tolist())  # syncs
    torch.zeros(int(sizes[0]), device=D)  # syncs


def chained_comparison():
    x = torch.tensor(0.5, device=D)
    assert 0 < x < 1  # syncs


def ternary_and_logic():
    x = torch.tensor(0.5, device=D)
    y = x if x > 0 else -x  # syncs
    z = y and not x.isnan()  # syncs
    assert z is not None


def any_and_all():
    grads = [torch.ones(2, device=D), torch.ones(3, device=D)]
    assert not any(g.isnan().any() for g in grads)  # syncs
    assert all((g == 1).all() for g in grads)  # syncs


def dictionary_of_losses_logged():
    losses = {"a": torch.tensor(1.0, device=D), "b": torch.tensor(2.0, device=D)}
    total = sum(losses.values())
    {name: float(value) for name, value in losses.items()}  # syncs
    " ".join(f"{name}={value:.2f}" for name, value in losses.items())  # syncs
    total.detach()


def hash_and_identity():
    x = torch.ones(2, device=D)
    seen = {x: 1}
    assert x in seen and id(x) and x is not x.clone()


def scheduler_by_lambda():
    model = nn.Linear(3, 2).to(D)
    optimizer = torch.optim.AdamW([{"params": model.weight, "lr": 0.1}, {"params": model.bias}], lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    for _ in range(2):
        model(torch.randn(1, 3, device=D)).sum().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def optimizer_moved_by_hand():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(1, 3)).sum().backward()
    optimizer.step()
    model.to(D)
    optimizer.zero_grad()
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value):
                state[name] = value.to(D)
    model(torch.randn(1, 3, device=D)).sum().backward()
    optimizer.step()  # syncs


def optimizer_state_left_on_the_host():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(1, 3)).sum().backward()
    optimizer.step()
    model.to(D)
    optimizer.zero_grad()
    model(torch.randn(1, 3, device=D)).sum().backward()
    optimizer.step()  # raises RuntimeError


def rmsprop_state_left_single_tensor():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.RMSprop(model.parameters(), foreach=False)
    model(torch.randn(1, 3)).sum().backward()
    optimizer.step()
    model.to(D)
    model(torch.randn(1, 3, device=D)).sum()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()  # raises RuntimeError: two devices


def fused_after_the_move_back():
    model = nn.Linear(3, 2).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):
        model(torch.randn(1, 3, device=D)).sum().backward()
        optimizer.step()
    assert all(state["step"].is_cuda for state in optimizer.state.values())


def lbfgs_closure():
    model = nn.Linear(3, 1).to(D)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = torch.randn(4, 3, device=D), torch.randn(4, 1)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()  # raises RuntimeError: two devices
        loss.backward()
        return loss

    optimizer.step(closure)


class Squares(Dataset):
    """Pairs of a number and its square, as numpy."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.float32(index), {"square": np.array([index**2], dtype=np.float32), "name": str(index)}


def collated_dictionaries():
    for numbers, rest in DataLoader(Squares(), batch_size=4, num_workers=1, pin_memory=True):
        assert numbers.is_pinned() and rest["square"].is_pinned()
        numbers.to(D, non_blocking=True) + rest["square"].squeeze(1)  # raises RuntimeError: two devices


def persistent_workers_twice():
    loader = DataLoader(Squares(), batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(2):
        for numbers, _rest in loader:
            numbers.cuda()


def sampler_with_device_weights():
    weights = torch.ones(8, device=D)
    sampler = torch.utils.data.WeightedRandomSampler(weights, 8)
    for _ in DataLoader(Squares(), sampler=sampler):  # syncs
        pass


def subset_by_device_indices():
    data = torch.utils.data.Subset([1, 2, 3], torch.tensor([1, 2], device=D))
    data[0]  # syncs


def whole_dataset_on_the_device():
    x = torch.randn(8, 3).to(D)
    y = torch.zeros(8, dtype=torch.long).to(D)
    order = torch.randperm(8, device=D)
    for rows in order.split(4):
        F.cross_entropy(nn.Linear(3, 2).to(D)(x[rows]), y[rows])


def no_grad_and_modes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).to(D)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad(), contextlib.nullcontext()):
        with mode:
            model(torch.randn(1, 3, device=D))
    with torch.no_grad():
        model(torch.randn(1, 3))  # raises RuntimeError: same device


def inference_tensor_used_later():
    model = nn.Linear(3, 3).to(D)
    with torch.inference_mode():
        features = model(torch.randn(1, 3, device=D))
    features.clone() + torch.ones(1, 3)  # raises RuntimeError: two devices


def warnings_are_no_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.ones(3, device=D)
        x.clone().detach().requires_grad_()
        torch.as_tensor(x)


def seeds_and_states():
    torch.cuda.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    state = torch.cuda.get_rng_state_all()
    first = torch.rand(3, device=D)
    torch.cuda.set_rng_state_all(state)
    assert torch.equal(first, torch.rand(3, device=D))  # syncs
    with torch.random.fork_rng(devices=[0]):
        torch.rand(3, device=D)


def timed_by_events():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.randn(8, 8, device=D) @ torch.randn(8, 8, device=D)
    end.record()
    torch.cuda.synchronize()  # syncs
    assert start.elapsed_time(end) >= 0


def profiled():
    with torch.autograd.profiler.record_function("step"), torch.cuda.nvtx.range("step"):
        torch.randn(3, device=D).sum()


def sorted_and_ranked():
    scores = torch.rand(5, device=D)
    values, order = torch.sort(scores, descending=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(5, device=D)
    values.cumsum(0)[ranks]
    ranks[order] = torch.arange(5)  # raises RuntimeError: same device


def einops_like_reshapes():
    x = torch.randn(2, 3, 4, device=D)
    y = x.permute(0, 2, 1).reshape(2, -1).unflatten(1, (4, 3)).flatten(1).roll(1, 1).flip(1)
    torch.einsum("bi,bj->bij", y, y).diagonal(dim1=1, dim2=2).tril()
    torch.tensordot(y, y, dims=([1], [1]))
    torch.kron(y[:1], torch.ones(1, 2))  # raises RuntimeError: two devices


def complex_numbers():
    x = torch.randn(4, dtype=torch.complex64, device=D)
    (x * 1j).abs().sum() + x.real.sum()
    x * torch.ones(4, dtype=torch.complex64)  # raises RuntimeError: two devices


def windows_and_filters():
    x = torch.randn(1, 1, 8, device=D)
    F.conv1d(x, torch.ones(1, 1, 3, device=D))
    window = torch.hamming_window(8)
    x * window  # raises RuntimeError: two devices


def affine_grids():
    theta = torch.eye(2, 3)[None].to(D)
    grid = F.affine_grid(theta, (1, 1, 4, 4), align_corners=False)
    assert grid.is_cuda
    F.grid_sample(torch.rand(1, 1, 4, 4), grid, align_corners=False)  # raises RuntimeError: expected input and grid


def cartesian_and_combinations():
    x = torch.arange(3, device=D)
    assert torch.cartesian_prod(x, x).is_cuda
    torch.tril_indices(3, 3, device=D)
    torch.triu_indices(3, 3)
    torch.bucketize(x, torch.tensor([0, 2]))  # raises RuntimeError


def sums_of_lists():
    losses = [torch.tensor(1.0, device=D), torch.tensor(2.0)]
    sum(losses)
    torch.stack(losses)  # raises RuntimeError: same device


def numpy_scalars_and_arrays():
    x = torch.ones(3, device=D)
    x * np.float32(2.0)
    x + np.int64(1)
    np.float32(2.0) * x


def assigned_from_numpy():
    x = torch.zeros(3, device=D)
    x[:] = torch.from_numpy(np.ones(3, dtype=np.float32))
    x[1] = 2
    x.copy_(torch.from_numpy(np.zeros(3)))


def loaders_zip():
    loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=4)
    model = nn.Linear(3, 2).to(D)
    for (a,), (b,) in zip(loader, loader, strict=True):
        model(a.to(D)) - model(b)  # raises RuntimeError: same device
