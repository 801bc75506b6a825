"""Evaluation: the mean loss and metrics over a loader, without touching the model's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from devlint.runtime import walk
from devlint.runtime.metrics import Mean
from devlint.runtime.train import TrainStep

Metric = Callable[[Any, Any], "torch.Tensor | float"]


def evaluated(step: TrainStep, loader: Iterable[Any], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """``eval_loss`` and ``eval_<name>`` for each metric, over all batches and all processes."""
    means = {name: Mean() for name in ("loss", *metrics)}
    with evaluating(step.model), torch.inference_mode():
        for batch in loader:
            loss, outputs, targets = step.evaluate(batch)
            size = batch_size(targets, batch)
            means["loss"].update(loss, size)
            for name, metric in metrics.items():
                value = metric(outputs, targets)
                single = not isinstance(value, torch.Tensor) or value.dim() == 0
                means[name].update(value, size if single else 1)
    return {f"eval_{name}": mean.compute(reduce=True) for name, mean in means.items()}


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """All modules in evaluation mode; afterwards each is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def batch_size(*values: Any) -> int:
    """The first dimension of the first tensor that has one; 1 if there is none."""
    for value in values:
        for _, tensor in walk.tensors(value):
            if tensor.dim():
                return int(tensor.shape[0])
    return 1
