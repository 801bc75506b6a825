"""Every private name of torch that the rehearsal uses, in one place, with the check that says whether it can run.

Tried on torch 2.13; the names are those of torch 2.4 and later.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

OLDEST = (2, 4)
TRIED = (2, 13)

_NEEDED = (
    ("torch._C", "_storage_id"),
    ("torch._C", "TensorBase"),
    ("torch._C", "DisableTorchFunction"),
    ("torch._C", "_current_autograd_node"),
    ("torch._C", "_is_torch_function_mode_enabled"),
    ("torch._C", "_set_grad_enabled"),
    ("torch._C._autograd", "_profiler_enabled"),
    ("torch._C", "_len_torch_function_stack"),
    ("torch._C", "_get_function_stack_at"),
    ("torch._C", "_group_tensors_by_device_and_dtype"),
    ("torch._C._nn", "_parse_to"),
    ("torch.utils._device", "_device_constructors"),
    ("torch.utils._device", "DeviceContext"),
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch.utils.data._utils.pin_memory", "pin_memory"),
    ("torch.autograd", "_make_grads"),
    ("torch.autograd.function", "BackwardCFunction"),
    ("torch.serialization", "_package_registry"),
    ("torch.nn.parallel._functions", "_streams"),
    ("torch.nn.parallel.data_parallel", "parallel_apply"),
    ("torch.storage", "UntypedStorage"),
)


class RehearsalUnavailable(RuntimeError):
    """The installed torch lacks something that the rehearsal stands on."""


def version() -> tuple[int, int]:
    """The installed torch's (major, minor)."""
    numbers = torch.__version__.split("+")[0].split(".")
    return int(numbers[0]), int(numbers[1])


def verify() -> str | None:
    """Check the private names; return a note when this torch is newer than what was tried.

    Raises ``RehearsalUnavailable`` naming what is missing.
    """
    have = version()
    if have < OLDEST:
        raise RehearsalUnavailable(
            f"devlint rehearse needs torch {OLDEST[0]}.{OLDEST[1]} or later; this is {torch.__version__}"
        )
    for module, name in _NEEDED:
        if not hasattr(importlib.import_module(module), name):
            raise RehearsalUnavailable(
                f"devlint rehearse was tried on torch {TRIED[0]}.{TRIED[1]}; "
                f"torch {torch.__version__} has no {module}.{name}: use an older torch, or a newer devlint"
            )
    if have > TRIED:
        return f"tried on torch {TRIED[0]}.{TRIED[1]}, not yet on {torch.__version__}"
    return None


C: Any = torch._C
Base: Any = torch._C.TensorBase
storage_id: Any = C._storage_id
no_torch_function: Any = torch._C.DisableTorchFunction
function_mode_active: Any = torch._C._is_torch_function_mode_enabled
current_autograd_node: Any = torch._C._current_autograd_node
parse_to: Any = torch._C._nn._parse_to
real_device: Any = torch._C.TensorBase.device.__get__
group_tensors: Any = torch._C._group_tensors_by_device_and_dtype
storage_expired: Any = torch.UntypedStorage._expired
free_weak_ref: Any = torch.UntypedStorage._free_weak_ref
untyped_storage: Any = torch._C.TensorBase.untyped_storage
profiler_enabled: Any = torch._C._autograd._profiler_enabled
sequence_number: Any = getattr(torch.autograd, "_get_sequence_nr", None)

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep


def device_constructors() -> set[Any]:
    """The factory functions that ``with torch.device(...)`` changes."""
    from torch.utils._device import _device_constructors

    return set(_device_constructors())


def default_device() -> torch.device | None:
    """The device that ``torch.set_default_device`` or ``with torch.device(...)`` asks for here."""
    from torch.utils._device import DeviceContext

    for index in range(C._len_torch_function_stack() - 1, -1, -1):
        mode = C._get_function_stack_at(index)
        if isinstance(mode, DeviceContext):
            return torch.device(mode.device)
    return None


def autograd_context() -> Any:
    """``torch.autograd.function.BackwardCFunction``: what runs a custom Function's backward."""
    return torch.autograd.function.BackwardCFunction


def make_grads() -> Any:
    """``torch.autograd._make_grads``: checks the gradients handed to ``backward``."""
    return torch.autograd._make_grads


def has_kernel(name: str, key: str) -> bool:
    """Whether operator ``name`` has its own kernel at dispatch key ``key``."""
    return bool(C._dispatch_has_kernel_for_dispatch_key(name, key))


def autocast_header() -> str | None:
    """The installed torch's ``ATen/autocast_mode.h``: CUDA's autocast lists; None where the wheel has none."""
    path = os.path.join(TORCH_FOLDER, "include", "ATen", "autocast_mode.h")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def native_functions() -> str | None:
    """Path of the ``native_functions.yaml`` inside the wheel (torchgen's packaged copy)."""
    folder = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "torchgen", "packaged", "ATen", "native")
    path = os.path.join(folder, "native_functions.yaml")
    return path if os.path.isfile(path) else None
