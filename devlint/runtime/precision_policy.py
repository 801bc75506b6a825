"""Mixed precision: which dtype to compute in, the autocast context, and the loss scaler that float16 needs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from devlint.runtime.device import best_device

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """What to compute in on a device.

    Attributes:
        dtype: ``torch.float32`` (no autocast: everything in the parameters' own dtype), ``torch.bfloat16`` or
            ``torch.float16``.
        device: where the computing happens.
        scaler: a ``torch.amp.GradScaler``, for float16 only; None for the others, whose range needs no scaling.

    Raises:
        ValueError: for another dtype, a scaler without float16, or float16 without an enabled scaler.
    """

    dtype: torch.dtype
    device: torch.device
    scaler: Any = None

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES.values():
            raise ValueError(f"Precision: dtype is {self.dtype}; it must be torch.float32, bfloat16 or float16")
        scales = self.scaler is not None and self.scaler.is_enabled()
        if scales and self.dtype is not torch.float16:
            raise ValueError(
                f"Precision: a GradScaler with {self.dtype}, whose range needs no loss scaling: it would only skip "
                "steps; pass scaler=None"
            )
        if self.dtype is torch.float16 and not scales:
            raise ValueError(
                "Precision: float16 without an enabled GradScaler, so small gradients become zero; "
                'pass scaler=torch.amp.GradScaler(device.type), or use precision("fp16")'
            )

    @property
    def name(self) -> str:
        """``"fp32"``, ``"bf16"`` or ``"fp16"``."""
        return next(name for name, dtype in _DTYPES.items() if dtype is self.dtype)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """A fresh context for forward pass and loss (not for backward). For float32 it does nothing."""
        if self.dtype is torch.float32:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[Any] = torch.autocast(self.device.type, dtype=self.dtype)
        return context


def precision(name: str = "auto", device: torch.device | str | int | None = None) -> Precision:
    """The precision to train in.

    Args:
        name: ``"fp32"``, ``"bf16"``, ``"fp16"``, or ``"auto"``: bfloat16 where the accelerator computes in it (CUDA
            from compute capability 8.0, ROCm, XPU), float16 on older CUDA devices, float32 on MPS and the CPU.
        device: where the computing happens; None is the best there is.

    Returns:
        a Precision; the scaler that float16 needs is a new one each time.

    Raises:
        ValueError: for another name.
        DeviceUnavailableError: if the device cannot be used here, with the reason.

    Source: the automatic mixed precision recipe and `torch.amp` in the PyTorch documentation.
    """
    where = best_device(device)
    if name == "auto":
        name = _best(where)
    if name not in _DTYPES:
        raise ValueError(f"precision: name is {name!r}; it must be one of auto, {', '.join(_DTYPES)}")
    dtype = _DTYPES[name]
    return Precision(dtype, where, torch.amp.GradScaler(where.type) if dtype is torch.float16 else None)


def _best(device: torch.device) -> str:
    if device.type == "xpu":
        return "bf16"
    if device.type != "cuda":
        return "fp32"
    if torch.version.hip is not None:
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    # is_bf16_supported is also true where bfloat16 is only emulated, which is slower than float32
    return "bf16" if torch.cuda.get_device_capability(device)[0] >= 8 else "fp16"
