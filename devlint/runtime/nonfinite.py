"""Gradients that are not finite: found on the device, kept from the parameters without waiting for it where possible.

Only for float32 and bfloat16: with float16 the loss scaler does all this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SHOWN = 6


def are_finite(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Whether every element of every gradient is finite: a 0-dim bool tensor on the device of the first."""
    device = gradients[0].device
    values = [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]
    if all(value.device.type == "cpu" for value in values):
        return torch.tensor(all(_is_finite(value) for value in values))
    values = [value for value in values if value.numel()]
    if not values:
        return torch.ones((), dtype=torch.bool, device=device)
    total_norm: Any = getattr(torch.nn.utils, "get_total_norm", None)  # torch 2.6 and later
    if total_norm is not None:
        largest = total_norm(values, float("inf"))
    else:
        largest = torch.stack([value.norm(float("inf")).to(device) for value in values]).max()
    finite: torch.Tensor = torch.isfinite(largest).to(device)
    return finite


def _is_finite(value: torch.Tensor) -> bool:
    """On the CPU. A sum takes a fortieth of the time that looking at each element takes, but it can overflow."""
    return math.isfinite(abs(value.sum().item())) or bool(value.isfinite().all())


def decided_on_host(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether to read the flag on the host: free on the CPU, and all that can be done for sparse gradients."""
    return all(gradient.device.type == "cpu" for gradient in gradients) or any(g.is_sparse for g in gradients)


def blank(gradients: Sequence[torch.Tensor], finite: torch.Tensor) -> None:
    """Set every gradient to zero unless the flag holds, and leave its bits alone if it does; the host does not wait.

    Multiplying by 0 would leave NaN of an infinite gradient, so the bits are multiplied, as integers.
    """
    for size in sorted({gradient.element_size() for gradient in gradients}):
        bits = [gradient.view(_INTEGERS[size]) for gradient in gradients if gradient.element_size() == size]
        torch._foreach_mul_(bits, finite.to(_INTEGERS[size]))


def names_of_bad(named: Iterable[tuple[str, torch.nn.Parameter]]) -> str:
    """The parameters whose gradients are not finite, for a message; waits for the device."""
    bad = []
    for name, parameter in named:
        gradient = parameter.grad
        if gradient is not None and not bool(are_finite([gradient])):
            bad.append(name)
    more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return ", ".join(bad[:SHOWN]) + more
