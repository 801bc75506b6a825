"""A training job for the tests: all that may go wrong when resuming is in it. As a program, it trains and may be killed.

python training_job.py CHECKPOINT RESULT [KILL_AT]      KILL_AT: the batch in whose loss the process kills itself
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from devlint.runtime import History, Precision, TrainStep, fit

BATCHES = 5
EPOCHS = 3


class Noisy(Dataset[Any]):
    """Samples with random augmentation, from the global generator."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(count, 6, generator=generator)
        self.targets = torch.randint(3, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index] + 0.1 * torch.randn(6), self.targets[index]


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float()


def make_step(name: str = "fp16", accumulate: int = 2, watch: Callable[[], None] = lambda: None) -> TrainStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    cpu = torch.device("cpu")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
    precision = Precision(torch.float16, cpu, scaler) if name == "fp16" else Precision(torch.float32, cpu)

    def loss_fn(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.requires_grad:
            watch()
        return F.cross_entropy(outputs, targets)

    return TrainStep(
        model,
        optimizer,
        loss_fn,
        precision=precision,
        accumulate=accumulate,
        clip_norm=1.0,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=40),
    )


def run(
    checkpoint: Path | None,
    *,
    watch: Callable[[], None] = lambda: None,
    loader: Any = None,
    epochs: int = EPOCHS,
    every: int | None = 1,
    step: TrainStep | None = None,
) -> tuple[History, TrainStep]:
    """Train from the checkpoint, if it is there, to the end."""
    step = step or make_step(watch=watch)
    history = fit(
        step,
        loader if loader is not None else DataLoader(Noisy(BATCHES * 8 - 3), batch_size=8, shuffle=True),
        epochs=epochs,
        eval_loader=DataLoader(Noisy(16), batch_size=6),
        metrics={"accuracy": accuracy},
        checkpoint=checkpoint,
        checkpoint_every=None if checkpoint is None else every,
        resume=checkpoint is not None,
        seed=4,
    )
    return history, step


def kill_at(batch: int) -> Callable[[], None]:
    seen = 0

    def watch() -> None:
        nonlocal seen
        seen += 1
        if seen == batch:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


if __name__ == "__main__":
    torch.set_num_threads(1)
    history, step = run(Path(sys.argv[1]), watch=kill_at(int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    torch.save({"epochs": history.epochs, "state": step.state_dict()}, sys.argv[2])
