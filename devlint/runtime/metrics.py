"""A running mean that stays on the device until it is asked for."""

from __future__ import annotations

from typing import Any

import torch


class Mean:
    """The mean of all values given so far. ``compute()`` is the only thing that waits for the device.

    Adding up is done in float64 (float32 on MPS, which lacks it), on the device of the first value.
    """

    def __init__(self) -> None:
        self._total: torch.Tensor | None = None
        self._weight = 0.0

    def update(self, value: torch.Tensor | float, weight: float = 1.0) -> None:
        """Add a value, or a tensor of values.

        Args:
            value: a number, or a tensor of any shape and real dtype; all its elements count.
            weight: of each element; the batch size, for a loss that is a mean over the batch.

        Raises:
            TypeError: for a tensor as weight, which would have to be read from its device, or a complex value.
            ValueError: for a negative weight.
        """
        if isinstance(weight, torch.Tensor):
            raise TypeError("Mean.update: weight is a tensor; it must be a number, such as len(targets)")
        if weight < 0:
            raise ValueError(f"Mean.update: weight is {weight}; it must not be negative")
        count = 1
        if isinstance(value, torch.Tensor):
            if value.is_complex():
                raise TypeError(f"Mean.update: value has dtype {value.dtype}; it must be real")
            value = value.detach()
            count = value.numel()
            if value.dim():
                value = value.sum(dtype=_dtype(value.device))
            if self._total is None:
                self._total = torch.zeros((), dtype=_dtype(value.device), device=value.device)
            self._total.add_(value, alpha=weight)
        else:
            if self._total is None:
                self._total = torch.zeros((), dtype=torch.float64)
            self._total.add_(value, alpha=weight)
        self._weight += weight * count

    def compute(self, *, reduce: bool = False) -> float:
        """The mean; NaN if there were no values.

        Args:
            reduce: over all processes of the default process group; then every process must call it.
        """
        total = 0.0 if self._total is None else float(self._total)
        weight = self._weight
        if reduce and torch.distributed.is_available() and torch.distributed.is_initialized():
            parts: list[Any] = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(parts, (total, weight))
            total, weight = sum(part[0] for part in parts), sum(part[1] for part in parts)
        return total / weight if weight else float("nan")

    def reset(self) -> None:
        """Forget all values."""
        self._total, self._weight = None, 0.0

    def state_dict(self) -> dict[str, Any]:
        """What was added up so far; reads it from the device."""
        return {"total": 0.0 if self._total is None else float(self._total), "weight": self._weight}

    def load_state_dict(self, state: dict[str, Any], device: torch.device | str = "cpu") -> None:
        """Go on from a state, on a device."""
        where = torch.device(device)
        self._total = torch.full((), state["total"], dtype=_dtype(where), device=where)
        self._weight = float(state["weight"])


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
