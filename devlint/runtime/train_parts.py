"""The parts that a TrainStep is made of: whether they go together, and where they are."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from devlint.runtime.device import module_device
from devlint.runtime.errors import DeviceMismatchError, MixedDeviceError
from devlint.runtime.move import as_device


def check_parts(optimizer: torch.optim.Optimizer, scheduler: Any, *, scaler: Any, accumulate: int) -> None:
    """Raise ValueError for parts of a TrainStep that do not go together."""
    closure, name = needs_closure(optimizer), type(optimizer).__name__
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if closure and scaler is not None:
        raise ValueError(f"TrainStep: {name} needs a closure, which a GradScaler cannot run; use bf16 or fp32")
    if closure and accumulate > 1:
        raise ValueError(f"TrainStep: {name} needs a closure, which is run on one batch: accumulate must be 1")
    if scaler is not None and any(p.dtype is torch.float16 for p in parameters):
        raise ValueError(
            "TrainStep: the parameters are float16, and fp16 precision needs them in float32 (autocast casts them "
            "where it helps): do not call model.half()"
        )
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise ValueError(
            "TrainStep: ReduceLROnPlateau steps on a metric, not on a training step; leave scheduler out and call "
            "scheduler.step(metric) after each evaluation"
        )
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("TrainStep: the scheduler was made for another optimizer than this one")


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    parameter = inspect.signature(optimizer.step).parameters.get("closure")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def device_of(model: torch.nn.Module, device: torch.device | str | None) -> torch.device:
    """The given device if the model is there, or spread over several; else the model's own."""
    if device is None:
        return module_device(model)
    wanted = as_device(device)
    try:
        found = module_device(model, default=wanted)
    except MixedDeviceError:
        return wanted
    if found.type != wanted.type or (None not in (found.index, wanted.index) and found != wanted):
        raise DeviceMismatchError(
            f"TrainStep: device is {wanted}, but the model is on {found}; move it, model.to({str(wanted)!r}), before "
            "making the optimizer"
        )
    return found
