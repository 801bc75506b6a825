"""What TrainStep costs: against the same steps written by hand, as ratios in one run.

    python benchmarks/runtime_train.py

Each figure is the least CPU time of many short, interleaved repeats of one window of batches. The loop written by hand
does what TrainStep does, but for looking at the gradients, which only the row "skip" has; "microseconds" is the
difference a batch. On the CPU, with small models, so that the overhead is seen at its largest.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from devlint.runtime import TrainStep

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Batch = tuple[torch.Tensor, torch.Tensor]


def network(width: int, depth: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(32, width)]
    for _ in range(depth):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def by_hand(model: nn.Module, name: str, accumulate: int, clip: bool, batch: Batch) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=name == "fp16")
    inputs, targets = batch
    device = torch.device("cpu")

    def window() -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(accumulate):
            moved, wanted = inputs.to(device), targets.to(device)
            if name == "fp32":
                loss = F.cross_entropy(model(moved), wanted)
            else:
                with torch.autocast("cpu", dtype=DTYPES[name]):
                    loss = F.cross_entropy(model(moved), wanted)
            scaler.scale(loss / accumulate).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return window


def ours(model: nn.Module, name: str, accumulate: int, clip: bool, batch: Batch, policy: Any) -> Callable[[], None]:
    step = TrainStep(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
        F.cross_entropy,
        precision=name,
        accumulate=accumulate,
        clip_norm=1.0 if clip else None,
        on_nonfinite=policy,
    )

    def window() -> None:
        for _ in range(accumulate):
            step(batch)

    return window


def least(functions: list[Callable[[], None]], repeats: int) -> list[float]:
    """The least CPU time of each, in seconds, taking turns."""
    best = [float("inf")] * len(functions)
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for index, function in enumerate(functions):
                start = time.process_time()
                for _ in range(5):
                    function()
                best[index] = min(best[index], (time.process_time() - start) / 5)
    finally:
        gc.enable()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | precision | accumulate | clip | on_nonfinite | by hand, µs | TrainStep / by hand | µs a batch |")
    print("|---|---|---|---|---|---|---|---|")
    for title, width, depth, size in (("3 layers of 32", 32, 1, 16), ("6 layers of 512", 512, 4, 128)):
        batch = torch.randn(size, 32), torch.randint(10, (size,))
        for name, accumulate, clip, policy in (
            ("fp32", 1, False, "ignore"),
            ("fp32", 1, False, "skip"),
            ("fp32", 1, True, "ignore"),
            ("fp32", 4, True, "ignore"),
            ("bf16", 1, True, "ignore"),
            ("fp16", 1, True, "skip"),
        ):
            functions = [
                by_hand(network(width, depth), name, accumulate, clip, batch),
                ours(network(width, depth), name, accumulate, clip, batch, policy),
            ]
            hand, mine = least(functions, options.repeats if width == 32 else max(options.repeats // 6, 3))
            print(
                f"| {title} | {name} | {accumulate} | {'yes' if clip else 'no'} | {policy} | {hand * 1e6:.0f} | "
                f"{mine / hand:.2f} | {(mine - hand) / accumulate * 1e6:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
