"""What a rehearsal costs: a training step of three models, rehearsed, as a multiple of the plain CPU step.

    python benchmarks/rehearse_overhead.py [--repeats N]

Plain and rehearsed steps alternate in one process; the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from devlint.runtime._rehearse import rehearse

Step = Callable[[], object]


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, inside, H, W) to (N, outside, H/stride, W/stride)."""
        out = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(out)) + self.short(images))


def resnet18() -> nn.Module:
    """ResNet-18 for 10 classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for outside, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(inside, outside, stride))
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def transformer() -> nn.Module:
    """Two encoder layers of width 64 over 32 positions, then 10 classes."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(64 * 32, 10))


def mlp() -> nn.Module:
    """Two small layers."""
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "ResNet-18": (resnet18, (8, 3, 112, 112), 1.2),
    "small transformer": (transformer, (16, 32, 64), 1.6),
    "tiny MLP": (mlp, (32, 32), 3.0),
}


def step_of(name: str, device: str) -> Step:
    """A training step: forward, loss, backward, SGD."""
    torch.manual_seed(0)
    make, shape, _ = MODELS[name]
    model = make().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(shape).to(device), torch.randint(0, 10, shape[:1]).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def timed(step: Step, repeats: int) -> list[float]:
    """Seconds of each call, after two that warm up."""
    step(), step()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="timed steps of each kind in each round")
    repeats = parser.parse_args().repeats
    print("| model | plain step | rehearsed | ratio | goal |\n|---|---|---|---|---|")
    for name, (_, _, goal) in MODELS.items():
        plain: list[float] = []
        rehearsed: list[float] = []
        for _ in range(3):
            plain += timed(step_of(name, "cpu"), repeats)
            with rehearse("cuda"):
                rehearsed += timed(step_of(name, "cuda"), repeats)
        before, after = statistics.median(plain), statistics.median(rehearsed)
        print(f"| {name} | {before * 1e3:.2f} ms | {after * 1e3:.2f} ms | {after / before:.2f} | {goal} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
