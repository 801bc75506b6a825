"""What the distributed tests run, in each of several processes or in one.  python ddp_job.py FOLDER"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from devlint.runtime import Dist, History, Mean, TrainStep, distributed, fit

GLOBAL_BATCH = 8
BATCHES = 5


class Unsized:
    """Batches whose number is not known before they end."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        yield from self.batches


class Branches(nn.Module):
    """One branch is used by the last batches of an epoch only, on one process only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.rare = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.body(inputs))
        rare = inputs[:, :1] > 50
        return self.head(hidden) + (rare * self.rare(hidden) if rare.any() else 0)


def batches(dist: Dist) -> list[Any]:
    """This process's part of each global batch."""
    generator = torch.Generator().manual_seed(1)
    part = GLOBAL_BATCH // dist.world_size
    found = []
    for index in range(BATCHES):
        inputs = torch.randn(GLOBAL_BATCH, 6, generator=generator)
        targets = torch.randint(3, (GLOBAL_BATCH,), generator=generator)
        if index == BATCHES - 1:
            inputs[GLOBAL_BATCH // 2, 0] = 100.0  # the first sample of rank 1
        mine = slice(dist.rank * part, (dist.rank + 1) * part)
        found.append((inputs[mine], targets[mine]))
    return found


def make_step(dist: Dist, model: nn.Module | None = None, **options: Any) -> TrainStep:
    torch.manual_seed(dist.rank)  # wrapping makes the parameters those of rank 0
    model = dist.wrap(model or nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TrainStep(model, optimizer, F.cross_entropy, accumulate=3, clip_norm=0.5, device=dist.device)


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float()


def sampled(dist: Dist) -> DataLoader[Any]:
    data = TensorDataset(torch.randn(40, 6, generator=torch.Generator().manual_seed(3)), torch.arange(40) % 3)
    return DataLoader(data, 2, sampler=DistributedSampler(data, dist.world_size, dist.rank, seed=5))


def interrupted(dist: Dist, file: Path, watch: Callable[[], None]) -> tuple[History, TrainStep]:
    step = make_step(dist)
    real = step.loss_fn

    def loss_fn(outputs: Any, targets: Any) -> Any:
        watch()
        return real(outputs, targets)

    step.loss_fn = loss_fn
    return fit(step, sampled(dist), epochs=3, checkpoint=file, resume=True, seed=2), step


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    with distributed(device="cpu") as dist:
        data = batches(dist)
        step = make_step(dist)
        history = fit(step, data, epochs=2, eval_loader=data, metrics={"accuracy": accuracy})
        result["sized"] = [history.epochs, step.steps, step.state_dict()["model"]]
        step = make_step(dist)
        history = fit(step, Unsized(data), epochs=2)
        result["unsized"] = [history.epochs, step.steps, step.state_dict()["model"]]
        step = make_step(dist, Branches(), **({"find_unused_parameters": True} if dist.world_size > 1 else {}))
        for batch in data:
            step(batch)
        step.flush()
        result["unused"] = [[], step.steps, step.state_dict()["model"]]
        mean = Mean()
        mean.update(torch.arange(4.0) + 10 * dist.rank, weight=1 + dist.rank)
        result["mean"] = mean.compute(reduce=True)
        indices: list[Any] = [None] * dist.world_size
        seen = [list(sampled_epoch(dist, epoch).sampler) for epoch in range(2)]
        if dist.world_size > 1:
            torch.distributed.all_gather_object(indices, seen)
            result["indices"] = indices
            left = 12  # in the second epoch, and in one process only

            def terminate() -> None:
                nonlocal left
                left -= 1
                if left == 0 and dist.rank == 1:
                    os.kill(os.getpid(), signal.SIGTERM)

            whole, step = interrupted(dist, folder / "whole.pt", lambda: None)
            expected = step.state_dict()
            stopped, step = interrupted(dist, folder / "last.pt", terminate)
            torch.distributed.barrier()
            resumed, step = interrupted(dist, folder / "last.pt", lambda: None)
            found = step.state_dict()
            result["stopped"] = [stopped.stopped, len(stopped.epochs), stopped.steps]
            same = all(torch.equal(found["model"][name], value) for name, value in expected["model"].items())
            result["resumed"] = [resumed == whole, same]
        result["who"] = [dist.rank, dist.local_rank, dist.world_size, str(dist.device), dist.is_main]
        torch.save(result, folder / f"result-{dist.world_size}-{dist.rank}.pt")
    print(json.dumps(result["who"]))


def sampled_epoch(dist: Dist, epoch: int) -> Any:
    from devlint.runtime.position import set_epoch

    loader = sampled(dist)
    set_epoch(loader, epoch)
    return loader


if __name__ == "__main__":
    main(Path(sys.argv[1]))
