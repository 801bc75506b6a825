"""Elementwise and matrix arithmetic: numbers, in-place writes, out=, joined lists, foreach."""

import torch
from torch import nn

D = "cuda"


def cpu_number_meets_device_tensor():
    x = torch.randn(3, device=D)
    x + torch.tensor(1.0)
    torch.tensor(2.0) * x
    x ** torch.tensor(2.0)
    torch.maximum(x, torch.tensor(0.0))
    x.lerp(x, torch.tensor(0.5))
    x.fill_(torch.tensor(1.0))


def device_number_meets_cpu_tensor():
    x = torch.randn(3)
    x + torch.tensor(1.0, device=D)  # raises RuntimeError: at least two devices


def one_element_is_not_a_number():
    x = torch.randn(3, device=D)
    x * torch.tensor([2.0])  # raises RuntimeError: at least two devices


def running_total_on_the_host():
    total = torch.tensor(0.0)
    loss = torch.randn(3, device=D).mean()
    total += loss  # raises RuntimeError: at least two devices


def running_total_becomes_the_devices():
    total = torch.tensor(0.0)
    total = total + torch.randn(3, device=D).mean()
    assert total.is_cuda


def running_python_total():
    total = 0
    total += torch.randn(3, device=D).mean()
    assert total.is_cuda


def comparison_mixed():
    predicted = torch.randint(0, 3, (4,), device=D)
    (predicted == torch.tensor([0, 1, 2, 0])).sum()  # raises RuntimeError: at least two devices


def logical_mixed():
    a = torch.tensor([True, False], device=D)
    a & torch.tensor([True, True])  # raises RuntimeError: at least two devices


def equal_mixed():
    torch.equal(torch.ones(2, device=D), torch.ones(2))  # raises RuntimeError


def isclose_mixed():
    torch.isclose(torch.ones(2, device=D), torch.ones(2))  # raises RuntimeError


def assert_close_looks_at_devices():
    torch.testing.assert_close(torch.ones(2, device=D), torch.ones(2))  # raises AssertionError: do not match


def matmul_mixed():
    torch.randn(2, 3, device=D) @ torch.randn(3, 2)  # raises RuntimeError: wrapper_CUDA_mm


def bmm_mixed():
    torch.bmm(torch.randn(1, 2, 3), torch.randn(1, 3, 2, device=D))  # raises RuntimeError: wrapper_CUDA_bmm


def dot_mixed():
    torch.dot(torch.ones(2, device=D), torch.ones(2))  # raises RuntimeError


def outer_mixed():
    torch.outer(torch.ones(2, device=D), torch.ones(2))  # raises RuntimeError: at least two devices


def addmm_cpu_bias():
    x = torch.randn(2, 3, device=D)
    torch.addmm(torch.zeros(4), x, torch.randn(3, 4, device=D))  # raises RuntimeError: wrapper_CUDA_addmm


def linear_function_cpu_weight():
    weight = torch.randn(4, 3)
    nn.functional.linear(torch.randn(2, 3, device=D), weight)  # raises RuntimeError: same device


def cat_of_a_list_with_one_left():
    kept = [torch.zeros(1, 3)]
    for _ in range(2):
        kept.append(torch.randn(1, 3, device=D))
    torch.cat(kept)  # raises RuntimeError: wrapper_CUDA_cat


def cat_with_an_empty_cpu_tensor():
    kept = torch.tensor([])
    torch.cat([kept, torch.randn(3, device=D)])  # raises RuntimeError: same device


def stack_of_numbers_mixed():
    torch.stack([torch.tensor(1.0, device=D), torch.tensor(2.0)])  # raises RuntimeError: same device


def stack_on_the_device():
    rows = [torch.randn(3, device=D) for _ in range(3)]
    torch.stack(rows).mean(0)
    torch.cat(rows)
    torch.vstack(rows)


def out_on_the_host():
    out = torch.empty(2, 2)
    a = torch.randn(2, 2, device=D)
    torch.matmul(a, a, out=out)  # raises RuntimeError: same device


def cat_out_on_the_host():
    a = torch.randn(2, device=D)
    torch.cat([a, a], out=torch.empty(4))  # raises RuntimeError: same device


def out_on_the_device():
    a = torch.randn(2, 2, device=D)
    out = torch.empty_like(a)
    torch.add(a, a, out=out)
    torch.sum(a, 0, out=torch.empty(2, device=D))


def sum_out_on_the_host():
    a = torch.randn(2, 2, device=D)
    torch.sum(a, 0, out=torch.empty(2))  # raises RuntimeError


def inplace_mul_on_the_host():
    decay = torch.ones(3)
    decay.mul_(torch.rand(3, device=D))  # raises RuntimeError: at least two devices


def copy_between_is_a_transfer():
    host = torch.zeros(3)
    host.copy_(torch.ones(3, device=D))  # syncs
    torch.zeros(3, device=D).copy_(host)


def host_filled_by_device_number():
    torch.zeros(3).fill_(torch.tensor(1.0, device=D))  # syncs


def foreach_mixed():
    ours = [torch.zeros(2, device=D), torch.zeros(3, device=D)]
    theirs = [torch.ones(2), torch.ones(3)]
    torch._foreach_add_(ours, theirs)  # raises RuntimeError: at least two devices


def foreach_ema():
    model = nn.Linear(3, 2).to(D)
    average = [p.detach().clone() for p in model.parameters()]
    torch._foreach_mul_(average, 0.9)
    torch._foreach_add_(average, [p.detach() for p in model.parameters()], alpha=0.1)
    torch._foreach_lerp_(average, [p.detach() for p in model.parameters()], 0.1)


def foreach_norm():
    model = nn.Linear(3, 2).to(D)
    norms = torch._foreach_norm(list(model.parameters()))
    assert torch.stack(norms).norm().is_cuda


def addcmul_cpu_factor():
    x = torch.randn(3, device=D)
    x.addcmul_(torch.ones(3), x)  # raises RuntimeError: at least two devices


def clamp_by_numbers():
    torch.randn(3, device=D).clamp(0, 1).clamp_(min=0.1)


def clamp_by_cpu_bounds():
    torch.randn(3, device=D).clamp(max=torch.ones(3))  # raises RuntimeError: same device


def einsum_three():
    a = torch.randn(2, 3, device=D)
    torch.einsum("ij,kj,k->i", a, torch.randn(4, 3, device=D), torch.ones(4))  # raises RuntimeError: same device


def linalg_solve_mixed():
    a = torch.eye(3, device=D)
    torch.linalg.solve(a, torch.ones(3))  # raises RuntimeError


def linalg_inv_waits():
    torch.linalg.inv(torch.eye(3, device=D))  # syncs


def cholesky_ex_does_not_wait():
    torch.linalg.cholesky_ex(torch.eye(3, device=D))


def quantile_of_a_device_tensor():
    x = torch.rand(8, device=D)
    torch.quantile(x, torch.tensor([0.1, 0.9]))  # raises RuntimeError: same device


def stft_window_left():
    wave = torch.randn(1, 64, device=D)
    torch.stft(wave, 16, window=torch.hann_window(16), return_complex=True)  # raises RuntimeError: same device


def stft_window_on_the_device():
    wave = torch.randn(1, 64, device=D)
    torch.stft(wave, 16, window=torch.hann_window(16, device=D), return_complex=True)


def two_gpus_meet():
    a, b = torch.zeros(3, device="cuda:0"), torch.zeros(3, device="cuda:1")
    a + b.to("cuda:0")
    a.sum() + b.sum()  # raises RuntimeError: cuda:0 and cuda:1
