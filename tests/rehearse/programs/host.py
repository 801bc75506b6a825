"""Reads of device values by the host: conversions, control flow, printing."""

import json
import math

import numpy as np
import torch

D = "cuda"


def numpy_with_a_gradient():
    torch.randn(3, device=D, requires_grad=True).numpy()  # raises TypeError: can't convert cuda:0 device type tensor


def numpy_function_of_a_device_tensor():
    np.sqrt(torch.ones(3, device=D))  # raises TypeError: can't convert cuda:0


def numpy_array_times_a_device_tensor():
    torch.ones(3, device=D) * np.array([1.0, 2.0, 3.0])  # raises TypeError


def numpy_array_of_a_list():
    np.array([torch.tensor(1.0, device=D), torch.tensor(2.0, device=D)])  # raises TypeError: can't convert cuda:0


def numpy_concatenate():
    np.concatenate([np.zeros(2), torch.ones(2, device=D)])  # raises TypeError: can't convert cuda:0


def numpy_after_cpu():
    np.mean(torch.ones(3, device=D).cpu().numpy())  # syncs


def numpy_forced():
    torch.ones(3, device=D).numpy(force=True)  # syncs


def numpy_into_the_device():
    x = torch.from_numpy(np.ones(3, dtype=np.float32))
    torch.randn(3, device=D) + x  # raises RuntimeError: at least two devices


def numpy_moved():
    torch.from_numpy(np.ones(3)).to(D) + torch.as_tensor(np.ones(3), device=D) + torch.tensor(np.ones(3), device=D)


def numpy_number_times_a_device_tensor():
    torch.ones(3, device=D) * float(np.float32(2.0))


def item_and_friends():
    x = torch.tensor(2.0, device=D)
    x.item()  # syncs
    float(x)  # syncs
    int(x)  # syncs
    bool(x)  # syncs
    math.sqrt(x)  # syncs


def range_of_a_device_number():
    lengths = torch.tensor([2, 3], device=D)
    for _ in range(lengths[0]):  # syncs
        pass


def branch_on_a_device_value():
    loss = torch.tensor(0.5, device=D)
    if loss < 1:  # syncs
        loss = loss * 2
    while loss > 3:  # syncs
        loss = loss / 2


def assert_on_a_device_value():
    x = torch.ones(3, device=D)
    assert torch.isfinite(x).all()  # syncs
    assert (x == 1).all(), "never"  # syncs


def chosen_by_python():
    losses = [torch.tensor(1.0, device=D), torch.tensor(2.0, device=D)]
    min(losses)  # syncs
    sorted(losses)  # syncs


def member_of_a_tensor():
    assert 1.0 in torch.ones(3, device=D)  # syncs


def tensor_of_tensors():
    losses = [torch.tensor(1.0, device=D), torch.tensor(2.0, device=D)]
    torch.tensor(losses)  # syncs


def stacked_and_read_once():
    losses = [torch.tensor(1.0, device=D), torch.tensor(2.0, device=D)]
    mean = torch.stack(losses).mean()
    mean.item()  # syncs


def printed():
    loss = torch.tensor(0.5, device=D)
    text = f"loss {loss:.3f}"  # syncs
    text += str(loss)  # syncs
    text += "{}".format(loss)  # syncs  # noqa: UP032
    assert text


def metadata_is_free():
    x = torch.randn(2, 3, device=D)
    assert x.shape == (2, 3) and x.numel() == 6 and x.dim() == 2 and len(x) == 2
    assert x.dtype is torch.float32 and x.is_contiguous() and not x.requires_grad and x.element_size() == 4
    for row in x:
        row.sum()
    a, b = x
    x.T.reshape(-1).unsqueeze(0).expand(2, -1)
    assert a.is_cuda and b.device == x.device


def list_of_a_tensor():
    rows = list(torch.ones(3, device=D))
    assert rows[0].is_cuda
    torch.ones(3, device=D).tolist()  # syncs
    json.dumps({"loss": torch.tensor(1.0, device=D).item()})  # syncs


def json_of_a_tensor():
    json.dumps({"loss": torch.tensor(1.0, device=D)})  # fails TypeError: not JSON serializable


def nonzero_variants():
    x = torch.tensor([0.0, 1.0], device=D)
    x.nonzero()  # syncs
    torch.nonzero(x, as_tuple=True)  # syncs
    torch.argwhere(x)  # syncs
    torch.where(x > 0)  # syncs
    x[x > 0]  # syncs
    torch.masked_select(x, x > 0)  # syncs
    torch.count_nonzero(x)
    torch.unique(x)  # syncs


def sampling():
    p = torch.ones(4, device=D)
    torch.multinomial(p, 1)  # syncs
    torch.multinomial(p, 2, replacement=True)
    torch.bernoulli(p / 4)
    torch.randperm(4, device=D)


def histogram_of_counts():
    torch.bincount(torch.tensor([1, 2], device=D))  # syncs
    torch.histc(torch.rand(8, device=D), 4, 0.0, 1.0)


def copies_to_the_host():
    x = torch.randn(3, device=D)
    x.cpu()  # syncs
    x.to("cpu")  # syncs
    x.to(torch.device("cpu"), torch.float64)  # syncs
    torch.zeros(3).copy_(x)  # syncs
    x.type(torch.FloatTensor)  # syncs
    x.to("cpu", non_blocking=True)
    torch.as_tensor(x, device="cpu")  # syncs


def waits_for_events_and_streams():
    event = torch.cuda.Event()
    event.record()
    event.query()
    event.synchronize()  # syncs
    torch.cuda.current_stream().synchronize()  # syncs
    torch.cuda.synchronize()  # syncs
    torch.cuda.synchronize(0)  # syncs


def running_metric_on_the_device():
    right = torch.zeros((), device=D)
    for _ in range(3):
        logits = torch.randn(4, 3, device=D)
        right += (logits.argmax(1) == torch.zeros(4, dtype=torch.long, device=D)).sum()
    right.item()  # syncs


def running_metric_on_the_host():
    right = 0
    for _ in range(3):
        logits = torch.randn(4, 3, device=D)
        right += (logits.argmax(1) == torch.zeros(4, dtype=torch.long, device=D)).sum().item()  # syncs
    assert right >= 0


def infinite_losses_are_skipped():
    loss = torch.tensor(float("nan"), device=D)
    if not math.isfinite(loss):  # syncs
        return
    raise AssertionError


def quantile_does_not_wait():
    x = torch.rand(8, device=D)
    torch.quantile(x, 0.5)
    x.median()
    x.std()


def factorisations():
    a = torch.eye(3, device=D) * 2
    torch.linalg.svd(a)  # syncs
    torch.linalg.eigh(a)  # syncs
    torch.linalg.qr(a)
    torch.linalg.det(a)
    torch.linalg.solve(a, torch.ones(3, 1, device=D))  # syncs
    torch.linalg.cholesky(a)  # syncs
    torch.linalg.matrix_norm(a)


def sparse_layouts():
    a = torch.eye(3, device=D)
    s = a.to_sparse()  # syncs
    (s + s).coalesce()
    s.to_dense().sum()


def categorical_samples():
    logits = torch.zeros(2, 3, device=D)
    chosen = torch.distributions.Categorical(logits=logits, validate_args=False)
    action = chosen.sample()  # syncs
    chosen.log_prob(action).sum() + chosen.entropy().mean()
    (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
