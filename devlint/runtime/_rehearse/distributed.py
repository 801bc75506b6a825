"""``torch.distributed`` on rehearsed devices: over gloo, whatever backend was asked for."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import Rehearsal

_DEVICE_BACKENDS = ("nccl", "xccl")


def install(session: Rehearsal, patches: Patches) -> None:
    """Run device backends over gloo; the gradient buckets of ``DistributedDataParallel`` follow its parameters."""
    if not torch.distributed.is_available():
        return
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    for name in ("init_process_group", "new_group"):
        over_gloo = _over_gloo(session, getattr(c10d, name))
        patches.set(c10d, name, over_gloo)
        patches.set(dist, name, over_gloo)
    for name in ("is_nccl_available", "is_xccl_available"):
        if hasattr(dist, name):
            patches.set(dist, name, lambda: True)
    _buckets(session, patches, dist)


def _over_gloo(session: Rehearsal, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        def swap(value: Any) -> Any:
            if isinstance(value, str) and any(name in value for name in _DEVICE_BACKENDS):
                session.report.note(f"{value}: run over gloo; collectives of CPU tensors, which it refuses, pass here")
                return "gloo"
            return value

        kwargs.pop("device_id", None)  # binds the group to a real device
        args = (swap(args[0]), *args[1:]) if args and function.__name__ == "init_process_group" else args
        return function(*args, **{**kwargs, **({"backend": swap(kwargs["backend"])} if "backend" in kwargs else {})})

    return call


def _buckets(session: Rehearsal, patches: Patches, dist: Any) -> None:
    """The reducer makes its buckets in C++, where the parameters seem to lie on the CPU."""
    real, rebuild = dist.Reducer, dist.Reducer._rebuild_buckets
    parameters: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def beside(tensors: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        outer, session.call = session.call, (function, tensors, {})
        try:
            return function(*args, **kwargs)
        finally:
            session.call = outer

    def make(params: Any, *args: Any, **kwargs: Any) -> Any:
        made = beside(params, real, params, *args, **kwargs)
        parameters[made] = params
        return made

    def rebuild_buckets(reducer: Any) -> Any:
        return beside(parameters.get(reducer, ()), rebuild, reducer)

    patches.set(dist, "Reducer", make)
    patches.set(real, "_rebuild_buckets", rebuild_buckets)
