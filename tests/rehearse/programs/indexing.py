"""Indexing, gathering and masks across devices."""

import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def cpu_table_by_device_ids():
    table = torch.arange(10.0)
    ids = torch.tensor([1, 2], device=D)
    table[ids]  # raises RuntimeError: indices should be either on cpu or on the same device


def device_table_by_cpu_ids():
    table = torch.arange(10.0, device=D)
    table[torch.tensor([1, 2])]  # syncs


def device_mask_writes_cpu_tensor():
    loss = torch.ones(4)
    mask = torch.tensor([True, False, True, False], device=D)
    loss[mask] = 0.0  # raises RuntimeError: indices should be either on cpu


def cpu_values_written_at_device_ids():
    table = torch.zeros(4, device=D)
    ids = torch.tensor([0, 2], device=D)
    table[ids] = torch.ones(2)  # raises RuntimeError: same device


def scalars_written_everywhere():
    table = torch.zeros(4, 3, device=D)
    ids = torch.tensor([0, 2], device=D)
    table[ids] = 1.0
    table[ids] = torch.tensor(2.0)
    table[0] = torch.tensor(3.0)
    table[1, 1] = 4
    table[:, 1:] = 5.0


def masked_assignment_of_a_number_needs_no_count():
    scores = torch.randn(4, 4, device=D)
    scores[scores < 0] = 0.0
    scores[scores > 1] = float("inf")


def masked_assignment_of_a_device_tensor_counts():
    scores = torch.randn(4, 4, device=D)
    other = torch.zeros(4, 4, device=D)
    mask = scores < 0
    scores[mask] = other[mask]  # syncs


def cpu_rows_copied_into_a_slice():
    bank = torch.zeros(8, 3, device=D)
    bank[:4] = torch.randn(4, 3)
    bank[4].copy_(torch.randn(3))


def masked_fill_cpu_mask():
    scores = torch.randn(2, 4, device=D)
    mask = torch.ones(2, 4).triu(1).bool()
    scores.masked_fill(mask, -1e9)  # raises RuntimeError: expected self and mask to be on the same device


def masked_fill_cpu_number():
    scores = torch.randn(2, 4, device=D)
    scores.masked_fill(scores > 0, torch.tensor(0.0))


def masked_fill_of_a_cpu_tensor_by_a_device_number():
    scores = torch.randn(2, 4)
    scores.masked_fill(scores > 0, torch.tensor(0.0, device=D))  # raises RuntimeError: same device


def masked_select_cpu_mask():
    x = torch.randn(4, device=D)
    torch.masked_select(x, torch.tensor([True, False, True, True]))  # raises RuntimeError: same device


def index_select_cpu_ids():
    x = torch.randn(4, 3, device=D)
    x.index_select(0, torch.tensor([0, 1]))  # raises RuntimeError: same device


def take_cpu_ids():
    x = torch.randn(4, 3, device=D)
    torch.take(x, torch.tensor([0, 1]))  # raises RuntimeError: same device


def take_along_dim_cpu_ids():
    x = torch.randn(4, 3, device=D)
    torch.take_along_dim(x, x.argsort(1).cpu(), 1)  # raises RuntimeError: same device


def scatter_cpu_ids():
    labels = torch.tensor([[0], [2]])
    torch.zeros(2, 3, device=D).scatter_(1, labels, 1.0)  # raises RuntimeError: same device


def scatter_add_on_device():
    out = torch.zeros(3, device=D)
    ids = torch.tensor([0, 1, 1], device=D)
    out.scatter_add_(0, ids, torch.ones(3, device=D))
    out.index_add_(0, ids, torch.ones(3, device=D))
    out.scatter_reduce_(0, ids, torch.ones(3, device=D), "amax")


def scatter_reduce_cpu_source():
    out = torch.zeros(3, device=D)
    ids = torch.tensor([0, 1, 1], device=D)
    out.scatter_reduce_(0, ids, torch.ones(3), "sum")  # raises RuntimeError: same device


def index_copy_cpu_rows():
    bank = torch.zeros(4, 3, device=D)
    bank.index_copy_(0, torch.tensor([1], device=D), torch.ones(1, 3))  # raises RuntimeError: same device


def index_fill_cpu_ids():
    bank = torch.zeros(4, 3, device=D)
    bank.index_fill_(0, torch.tensor([1]), 0.0)  # raises RuntimeError: same device


def index_put_counts_on_the_host():
    counts = torch.zeros(4)
    seen = torch.randint(0, 4, (8,), device=D)
    counts.index_put_((seen,), torch.ones(8), accumulate=True)  # raises RuntimeError: indices should be either on cpu


def where_one_sided():
    x = torch.randn(3, device=D)
    torch.where(x > 0, x, torch.zeros(3))  # raises RuntimeError: same device


def where_numbers():
    x = torch.randn(3, device=D)
    torch.where(x > 0, x, torch.tensor(0.0))
    torch.where(x > 0, 1.0, 0.0)
    torch.where(x > 0, x, -torch.inf)


def searchsorted_cpu_edges():
    edges = torch.linspace(0, 1, 5)
    torch.searchsorted(edges, torch.rand(3, device=D))  # raises RuntimeError


def topk_and_sort_stay():
    x = torch.randn(4, 5, device=D)
    values, ids = x.topk(2)
    assert values.is_cuda and ids.is_cuda
    x.gather(1, ids)
    x.sort(dim=1).values.cumsum(1)


def argmax_into_host_list():
    names = ["a", "b", "c"]
    best = torch.tensor([0.1, 0.7, 0.2], device=D).argmax()
    assert names[best] == "b"  # syncs


def one_hot_with_a_number_of_classes():
    F.one_hot(torch.tensor([0, 1], device=D), 4)


def one_hot_must_look():
    F.one_hot(torch.tensor([0, 1], device=D))  # syncs


def embedding_cpu_ids():
    table = nn.Embedding(10, 4).to(D)
    table(torch.tensor([1, 2]))  # raises RuntimeError: same device


def embedding_left_on_host():
    table = nn.Embedding(10, 4)
    table(torch.tensor([1, 2], device=D))  # raises RuntimeError: same device


def positions_made_on_the_device():
    table = nn.Embedding(10, 4).to(D)
    x = torch.randint(0, 10, (2, 5), device=D)
    table(torch.arange(x.shape[1], device=x.device)) + table(x)


def meshgrid_mixed():
    torch.meshgrid(torch.arange(2, device=D), torch.arange(3), indexing="ij")  # raises RuntimeError: same device


def tensor_split_by_device_sections():
    x = torch.randn(6, device=D)
    torch.tensor_split(x, torch.tensor([2, 4], device=D))  # raises RuntimeError: to be on cpu


def slice_by_device_number():
    x = torch.randn(6, device=D)
    n = torch.tensor(3, device=D)
    x[:n]  # syncs


def repeats_on_the_device():
    x = torch.randn(3, device=D)
    repeats = torch.tensor([1, 2, 1], device=D)
    torch.repeat_interleave(x, repeats)  # syncs


def repeats_with_known_size():
    x = torch.randn(3, device=D)
    repeats = torch.tensor([1, 2, 1], device=D)
    torch.repeat_interleave(x, repeats, output_size=4)


def block_diag_mixed():
    torch.block_diag(torch.ones(2, 2, device=D), torch.ones(1, 1))  # raises RuntimeError: same device
