"""Several processes: what ``torchrun`` tells each of them, in one object."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import torch

from devlint.runtime.device import best_device

_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Dist:
    """This process among the others. As a context manager it takes the process group down at the end.

    Attributes:
        rank: of this process, from 0, over all machines.
        local_rank: on this machine.
        world_size: how many processes there are.
        device: the one that this process works on.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the one that prints and writes."""
        return self.rank == 0

    def wrap(self, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """The model on the device, in DistributedDataParallel if there are several processes.

        Wrap before making the optimizer. A model without trainable parameters, and any model in a single process, is
        moved and returned as it is.

        Args:
            model: any module; its parameters and buffers become those of rank 0.
            options: for DistributedDataParallel.
        """
        model = model.to(self.device)
        if self.world_size == 1 or not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        from torch.nn.parallel import DistributedDataParallel

        if self.device.type != "cpu":
            options.setdefault("device_ids", [self.device.index])
        return DistributedDataParallel(model, **options)

    def __enter__(self) -> Dist:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.world_size > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def distributed(*, device: torch.device | str | None = None, backend: str | None = None) -> Dist:
    """Join the other processes that ``torchrun`` started, or be the only one.

    Without ``WORLD_SIZE`` in the environment, or with 1, there is one process and no process group. Otherwise this
    process's accelerator is made the current one and the default process group is set up, unless it is already.

    Args:
        device: ``"cpu"``, or a kind of accelerator; None is the best there is.
        backend: of the process group; None is nccl for CUDA, xccl for XPU, gloo otherwise.

    Raises:
        ValueError: if a variable that ``torchrun`` sets is missing or is no number; it is named.
        RuntimeError: if this torch is built without torch.distributed.
        DeviceUnavailableError: if the device cannot be used, or there are more processes than devices.

    Source: `torchrun` (environment variables) and `torch.distributed` in the PyTorch documentation.
    """
    world_size = _number("WORLD_SIZE", 1)
    if world_size <= 1:
        return Dist(0, 0, 1, best_device(device))
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise ValueError(
            f"distributed: WORLD_SIZE is {world_size}, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not set; start with torchrun, or unset WORLD_SIZE for a single process"
        )
    if not torch.distributed.is_available():
        raise RuntimeError(f"distributed: torch {torch.__version__} is built without torch.distributed")
    rank, local_rank = _number("RANK", 0), _number("LOCAL_RANK", 0)
    where = best_device(device)
    current: Any = getattr(torch, where.type, None)
    if where.type in _BACKENDS:
        current.set_device(where)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(backend or _BACKENDS.get(where.type, "gloo"))
    return Dist(rank, local_rank, world_size, where)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number; set it as torchrun does, or unset it") from None


def world() -> tuple[int, int]:
    """Rank and number of processes of the default process group; (0, 1) without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own module, out of DistributedDataParallel and torch.compile."""
    inner: Any = model
    while True:
        if isinstance(inner, torch.nn.parallel.DistributedDataParallel):
            inner = inner.module
        elif hasattr(inner, "_orig_mod"):
            inner = inner._orig_mod
        else:
            return cast(torch.nn.Module, inner)


def average_gradients(model: Any) -> None:
    """What DistributedDataParallel does in backward, for gradients that were computed under no_sync."""
    group = model.process_group
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device)
    torch.distributed.all_reduce(used, op=torch.distributed.ReduceOp.MAX, group=group)
    size = torch.distributed.get_world_size(group)
    for parameter, anywhere in zip(parameters, used.tolist(), strict=True):
        if anywhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad, group=group)
            parameter.grad.div_(size)
