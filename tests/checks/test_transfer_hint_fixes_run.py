"""What the fixes of the opt-in transfer rules make of a program computes the same, run under torch on the CPU."""

import warnings

import pytest
import torch

from devlint.settings import Settings
from devlint.testing import fixed

INDICES = {
    "in place": "[data[torch.randperm(6)[:3]] for _ in range(2)]",
    "columns": "[data[:, torch.arange(3).flip(0)] for _ in range(2)]",
    "broadcast": "[data[torch.arange(6)[:, None], torch.arange(2)] for _ in range(2)]",
    "mask": "[data[torch.rand(6) > 0.5] for _ in range(2)]",
}
INDEXED = """
import torch

def use(data, device):
    data = data.to(device)
    return {use}
"""
NAMED = """
import torch

class Shuffle(torch.nn.Module):
    def forward(self, x):
        order = torch.randperm(x.size(0))
        return x[order]

def use(data, device):
    return [Shuffle()(data.to(device)) for _ in range(2)]
"""
LOADER = """
import torch
from torch.utils.data import DataLoader

def use(data, device):
    found = []
    for x in DataLoader(data, batch_size=4{pin}):
        x = x.to(device, non_blocking=True)
        found.append(x * 2)
    return found
"""
PROGRAMS = {
    **{name: ("TDL219", INDEXED.format(use=use), "device=data.device") for name, use in INDICES.items()},
    "forward": ("TDL219", NAMED, "device=x.device"),
    "loader": ("TDL203", LOADER.format(pin=""), "batch_size=4, pin_memory=True"),
    "not pinned": ("TDL203", LOADER.format(pin=", pin_memory=False"), "batch_size=4, pin_memory=True"),
}


def run(code: str) -> list[torch.Tensor]:
    """What the program's `use` returns for a small tensor on the CPU, from one seed."""
    scope: dict = {}
    exec(compile(code, "case.py", "exec"), scope)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        return scope["use"](torch.arange(18.0).view(6, 3), torch.device("cpu"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fixed_program_computes_the_same(name: str) -> None:
    code, before, written = PROGRAMS[name]
    settings = Settings(frozenset({code}))
    result = fixed(before, settings)
    assert written in result.text and not result.remaining
    one, other = run(before), run(result.text)
    assert len(one) == len(other) > 0
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
