"""``DataParallel``: its copies between devices in Python, its replicas one after another."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import CPU, Rehearsal


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for what ``torch.nn.parallel`` does in C++ and in threads."""
    comm: Any = importlib.import_module("torch.nn.parallel.comm")
    nccl: Any = importlib.import_module("torch.cuda.nccl")

    def place(device: Any) -> Any:
        if isinstance(device, int) and device < 0:
            return CPU
        return session.resolve(device) or torch.device(device)

    def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> Any:
        if out is not None:
            for target in out:
                target.copy_(tensor)
            return out
        return tuple(tensor.to(place(device)) for device in devices)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
        return [[tensor.to(place(device)) for tensor in tensors] for device in devices]

    def scatter(
        tensor: Any, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, streams: Any = None, *, out: Any = None
    ) -> Any:
        if out is not None:
            parts = tensor.split([target.size(dim) for target in out], dim)
            for target, part in zip(out, parts, strict=True):
                target.copy_(part)
            return tuple(out)
        parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes is not None else tensor.chunk(len(devices), dim)
        return tuple(part.to(place(device)).contiguous() for part, device in zip(parts, devices, strict=False))

    def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
        target = out.device if out is not None else place(session.current if destination is None else destination)
        return torch.cat([tensor.to(target) for tensor in tensors], dim, out=out)

    def parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
        given = kwargs_tup or [{}] * len(modules)
        places = [place(device) for device in devices] if devices is not None else [None] * len(modules)
        results = []
        before = session.current
        try:
            for module, args, kwargs, target in zip(modules, inputs, given, places, strict=True):
                session.current = before if target is None else target.index
                results.append(module(*(args if isinstance(args, (list, tuple)) else (args,)), **kwargs))
        finally:
            session.current = before
        return results

    made = {"broadcast": broadcast, "broadcast_coalesced": broadcast_coalesced, "scatter": scatter, "gather": gather}
    for name, function in made.items():
        for module in (comm, importlib.import_module("torch.cuda.comm")):
            patches.set(module, name, function)
    patches.set(nccl, "is_available", lambda tensors: False)
    # torch keeps a list of copy streams, one for each device of the rehearsal that made it
    patches.set(importlib.import_module("torch.nn.parallel._functions"), "_streams", None)
    for path in ("torch.nn.parallel.data_parallel", "torch.nn.parallel.parallel_apply"):
        patches.set(importlib.import_module(path), "parallel_apply", parallel_apply)
    patches.set(torch.nn.parallel, "parallel_apply", parallel_apply)
