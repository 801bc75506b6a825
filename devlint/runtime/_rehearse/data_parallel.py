"""``torch.nn.DataParallel``: the copies between devices that a torch without CUDA lacks."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.private_api import C
from devlint.runtime._rehearse.state import Rehearsal

Tensor = torch.Tensor


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for scatter, gather and broadcast; run the replicas one after the other."""
    if session.kind != "cuda":
        return
    module = importlib.import_module("torch.nn.parallel.data_parallel")  # the name is a function's too

    def scatter(tensor: Tensor, devices: Sequence[int], sizes: Any, dim: int, streams: Any = None) -> list[Tensor]:
        pieces = torch.split(tensor, sizes, dim) if sizes is not None else tensor.chunk(len(devices), dim)
        return [piece.to(session.devices[index], copy=True) for piece, index in zip(pieces, devices, strict=False)]

    def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
        target = torch.device("cpu") if destination == -1 else session.devices[destination or 0]
        return torch.cat([tensor.to(target) for tensor in tensors], dim)

    def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
        return [tensor.to(session.devices[index]) for index in devices]

    def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], size: int) -> list[list[Tensor]]:
        return [[tensor.to(session.devices[index]) for tensor in tensors] for index in devices]

    def in_turn(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
        outputs = []
        for position, replica in enumerate(modules):
            with torch.cuda.device(devices[position] if devices is not None else None):
                kwargs = kwargs_tup[position] if kwargs_tup is not None else {}
                outputs.append(replica(*inputs[position], **kwargs))
        return outputs

    patches.set(C, "_scatter", scatter)
    patches.set(C, "_gather", gather)
    patches.set(C, "_broadcast", broadcast)
    patches.set(C, "_broadcast_coalesced", broadcast_coalesced)
    patches.set(module, "parallel_apply", in_turn)
    patches.set(importlib.import_module("torch.nn.parallel._functions"), "_streams", None)  # one a device, kept
    patches.set(torch.cuda.nccl, "is_available", lambda tensors: False)
