"""devlint.runtime: corrected device utilities and the AMP loop, over plain torch.

Needs torch 2.4 or later and nothing else. Every function and class works by itself, on CUDA, XPU, MPS and CPU, alone
and under ``torchrun``. Names are imported when they are first used, so that ``import devlint.runtime`` costs little
more than torch itself, and nothing here imports libcst.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devlint.runtime._rehearse import Report, rehearse
    from devlint.runtime.checkpoint import load_checkpoint, save_checkpoint
    from devlint.runtime.device import best_device, default_device, module_device
    from devlint.runtime.dist import Dist, distributed
    from devlint.runtime.errors import DeviceMismatchError, DeviceUnavailableError, MixedDeviceError
    from devlint.runtime.explain import explain_device_errors
    from devlint.runtime.fit_loop import History, fit
    from devlint.runtime.guard import check_devices, device_check, guard_devices
    from devlint.runtime.loader import DeviceLoader, make_loader
    from devlint.runtime.metrics import Mean
    from devlint.runtime.move import devices_of, to_device
    from devlint.runtime.precision_policy import Precision, precision
    from devlint.runtime.preload import PreloadedDataset
    from devlint.runtime.seeding import seed_everything
    from devlint.runtime.train import StepResult, TrainStep

_MODULES = {
    "_rehearse": ("Report", "rehearse"),
    "checkpoint": ("load_checkpoint", "save_checkpoint"),
    "device": ("best_device", "default_device", "module_device"),
    "dist": ("Dist", "distributed"),
    "errors": ("DeviceMismatchError", "DeviceUnavailableError", "MixedDeviceError"),
    "explain": ("explain_device_errors",),
    "fit_loop": ("History", "fit"),
    "guard": ("check_devices", "device_check", "guard_devices"),
    "loader": ("DeviceLoader", "make_loader"),
    "metrics": ("Mean",),
    "move": ("devices_of", "to_device"),
    "precision_policy": ("Precision", "precision"),
    "preload": ("PreloadedDataset",),
    "seeding": ("seed_everything",),
    "train": ("StepResult", "TrainStep"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DeviceLoader",
    "DeviceMismatchError",
    "DeviceUnavailableError",
    "Dist",
    "History",
    "Mean",
    "MixedDeviceError",
    "Precision",
    "PreloadedDataset",
    "Report",
    "StepResult",
    "TrainStep",
    "best_device",
    "check_devices",
    "default_device",
    "device_check",
    "devices_of",
    "distributed",
    "explain_device_errors",
    "fit",
    "guard_devices",
    "load_checkpoint",
    "make_loader",
    "module_device",
    "precision",
    "rehearse",
    "save_checkpoint",
    "seed_everything",
    "to_device",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
