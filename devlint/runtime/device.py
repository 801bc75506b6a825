"""Which device: the best one, a module's, the default one; and why a device is not there."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

import torch

from devlint.runtime.errors import DeviceUnavailableError, MixedDeviceError, by_device
from devlint.runtime.walk import named_tensors

F = TypeVar("F", bound=Callable[..., Any])

_SIMULATED = ("cpu", "meta")
_VISIBLE = {"cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "xpu": ("ZE_AFFINITY_MASK",)}


def best_device(prefer: torch.device | str | int | None = None) -> torch.device:
    """The device that this process should work on.

    In this order: ``prefer`` if given; under a launcher (``LOCAL_RANK`` set, as by ``torchrun``) this process's own
    accelerator; the current accelerator; the CPU. Accelerators come with their index (``cuda:0``), so that the
    result compares equal to ``tensor.device``. ``prefer="cuda"`` without an index takes the index from ``LOCAL_RANK``.
    Where a launcher shows each process one device only, that one is taken, whatever ``LOCAL_RANK`` is.

    Raises:
        DeviceUnavailableError: if the preferred device cannot be used here, or ``LOCAL_RANK`` counts past the
            devices; with the reason.
        ValueError: if ``prefer`` names no device or ``LOCAL_RANK`` is no number.

    Source: `torch.accelerator`, `torchrun` (environment variables) in the PyTorch documentation.
    """
    if prefer is not None:
        from devlint.runtime.move import as_device

        device = as_device(prefer)
        if device.type in _SIMULATED:
            return device
        if device.index is None:
            require(device)
            device = torch.device(device.type, _local_index(device.type))
        require(device)
        return device
    kind = accelerator_type()
    if kind is None:
        return torch.device("cpu")
    device = torch.device(kind, _local_index(kind))
    require(device)
    return device


def module_device(module: torch.nn.Module, *, default: torch.device | str | None = None) -> torch.device:
    """The device of a module's parameters and buffers.

    A module without any gets ``default``, or else torch's default device: such a module runs where its inputs are.

    Raises:
        MixedDeviceError: if they are on several devices; it lists them by name.
    """
    devices = {name: tensor.device for name, tensor in named_tensors(module)}
    found = set(devices.values())
    if len(found) == 1:
        return found.pop()
    if found:
        raise MixedDeviceError(
            f"{type(module).__name__} has its parameters and buffers on {len(found)} devices:\n{by_device(devices)}\n"
            "move the module as a whole, module.to(device), after all its parts are in place",
            devices,
        )
    if default is not None:
        from devlint.runtime.move import as_device

        return as_device(default)
    return torch.get_default_device()


class default_device:
    """Context manager and decorator: tensors made inside without ``device=`` are made on a device.

    ``with default_device("cuda") as device:`` yields the ``torch.device``. It nests, can be entered again, and leaves
    what was there before. As torch's own default device it holds for the current thread only (not for DataLoader
    workers or threads started inside), costs a few microseconds a torch call, and does not move anything.

    Raises:
        ValueError: if this names no device.
        DeviceUnavailableError: on entry, if the device cannot be used here, with the reason.
        TypeError: if it decorates a generator or coroutine function, which would run outside of it.

    Source: `torch.device` as a context manager, `torch.set_default_device` in the PyTorch documentation.
    """

    def __init__(self, device: torch.device | str | int) -> None:
        from devlint.runtime.move import as_device

        self.device = as_device(device)

    def __enter__(self) -> torch.device:
        require(self.device)
        context: Any = self.device
        context.__enter__()
        return self.device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context: Any = self.device
        context.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(
                f"default_device cannot decorate {function.__qualname__}: its body runs after the call returns; "
                "use `with default_device(...)` inside it"
            )

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with default_device(self.device):
                return function(*args, **kwargs)

        return cast(F, inside)


def accelerator_type() -> str | None:
    """``"cuda"``, ``"xpu"``, ``"mps"``, … for the accelerator that can be used here, or None."""
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is not None and accelerator.is_available():
        return str(accelerator.current_accelerator().type)
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind
    return "mps" if torch.backends.mps.is_available() else None


def _local_index(kind: str) -> int:
    """The index that this process should take: ``LOCAL_RANK``'s, or the current device's."""
    text = os.environ.get("LOCAL_RANK")
    count = _count(kind)
    if text is not None:
        try:
            rank = int(text)
        except ValueError:
            raise ValueError(f"LOCAL_RANK is {text!r}, not a number; set it as torchrun does, or unset it") from None
        return 0 if count == 1 else rank
    module = getattr(torch, kind, None)
    initialised = getattr(module, "is_initialized", None)
    if initialised is not None and initialised():  # asking sooner would initialise it, which forbids forking
        return int(cast(Any, module).current_device())
    return 0


def _count(kind: str) -> int:
    counter = getattr(getattr(torch, kind, None), "device_count", None)
    return int(counter()) if counter is not None else 1


def require(device: torch.device) -> None:
    """Raise DeviceUnavailableError, with the reason, unless this process can use the device."""
    reason = why_unavailable(device)
    if reason:
        raise DeviceUnavailableError(f"{device} cannot be used: {reason}")


def why_unavailable(device: torch.device) -> str:
    """Why this process cannot use a device; empty if it can."""
    kind = device.type
    if kind in _SIMULATED:
        return ""
    module = getattr(torch, kind, None)
    available = getattr(module, "is_available", None)
    if kind == "mps":
        if torch.backends.mps.is_available():
            return ""
        if not torch.backends.mps.is_built():
            return f"torch {torch.__version__} is built without MPS support; {_instead()}"
        return f"MPS needs macOS 12.3 or later on an Apple GPU; {_instead()}"
    if module is None or available is None:
        return f"no backend for {kind!r} is loaded in this process; import the package that brings it, or {_instead()}"
    if available():
        count = _count(kind)
        if device.index is None or device.index < count:
            return ""
        hidden = _hidden(kind)
        rank = os.environ.get("LOCAL_RANK")
        ranked = f"; LOCAL_RANK is {rank}: start no more processes than devices" if rank == str(device.index) else ""
        return f"this process sees {count} {kind} device{'s' if count != 1 else ''}, counted from 0{hidden}{ranked}"
    return f"{_cause(kind, module)}; {_instead()}"


def _cause(kind: str, module: Any) -> str:
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is a build without CUDA (install one from pytorch.org/get-started)"
    if kind == "xpu" and not getattr(torch.xpu, "_is_compiled", bool)():
        return f"torch {torch.__version__} is built without XPU support"
    hidden = _hidden(kind)
    if hidden:
        return f"no {kind} device is visible{hidden}"
    if kind == "cuda" and torch.version.cuda is not None and not os.path.exists("/proc/driver/nvidia/version"):
        return "no NVIDIA driver is loaded on this machine (does `nvidia-smi` work?)"
    return f"torch finds no {kind} device on this machine"


def _hidden(kind: str) -> str:
    for variable in _VISIBLE.get(kind, ()):
        if variable in os.environ:
            return f" ({variable}={os.environ[variable]!r} hides the others)"
    return ""


def _instead() -> str:
    kind = accelerator_type()
    return f"use {kind!r} or 'cpu'" if kind else "use 'cpu' (devlint.runtime.best_device() finds what there is)"
