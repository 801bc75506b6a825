"""Checks that name what is on the wrong device: for values, for a function's arguments, for a module's inputs."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

import torch
from torch.utils.hooks import RemovableHandle

from devlint.runtime.device import module_device
from devlint.runtime.errors import DeviceMismatchError, by_device
from devlint.runtime.walk import named_tensors, tensors

F = TypeVar("F", bound=Callable[..., Any])


def check_devices(*batches: Any, device: torch.device | str | None = None, **named: Any) -> None:
    """Check that all tensors in some values are on one device.

    Args:
        batches: tensors, nested batches or modules. Paths start with ``batch``, or ``batches[0]``, … for several.
        device: where all must be. Without an index, any device of that type will do. None: they must agree among
            themselves, and 0-dim CPU tensors are let through, since torch computes with those on any device.
        named: further values, named in the message by their keyword.

    Raises:
        DeviceMismatchError: listing the tensors by device; its ``devices`` maps each path to its device.
        ValueError: if ``device`` names no device.

    Example:
        >>> check_devices(batch, model=model)
        DeviceMismatchError: tensors on 2 devices:
          cuda:0: model.weight, model.bias, batch['x']
          cpu: batch['mask'] of shape (4, 8)
    """
    found: list[tuple[str, torch.Tensor]] = []
    for index, batch in enumerate(batches):
        found += tensors(batch, "batch" if len(batches) == 1 else f"batches[{index}]")
    for name, value in named.items():
        found += tensors(value, name)
    if device is None:
        _agree(found, None, "")
        return
    from devlint.runtime.move import as_device

    wanted = as_device(device)
    odd = [(path, tensor) for path, tensor in found if not _on(tensor, wanted)]
    if odd:
        raise _mismatch(f"not on {wanted}", odd, found, f"move them: devlint.runtime.to_device(batch, {str(wanted)!r})")


def device_check(
    *names: str,
    device: Literal["first", "module"] | torch.device | str = "first",
    on_mismatch: Literal["raise", "warn"] = "raise",
) -> Callable[[F], F]:
    """Decorator: check, at each call, that the tensors in some arguments are on one device.

    The arguments are looked into at any depth, and the message names the paths (``batch['x'][0]``). The signature,
    name and docstring of the function are kept. Under ``torch.compile`` and ``torch.export`` it does nothing. 0-dim
    CPU tensors are let through, but for an explicit device.

    Args:
        names: the parameters to check; none means all of them.
        device: ``"first"``: the device of the first tensor in the named order; ``"module"``: that of the first
            argument that is a module (``self`` in a method); or a device.
        on_mismatch: ``"raise"`` a DeviceMismatchError, or ``"warn"`` with a RuntimeWarning and go on.

    Raises:
        TypeError: at decoration, for a name that is no parameter of the function, or for what is no function.
        ValueError: at decoration, for another ``on_mismatch``, or a ``device`` that names none.
        TypeError: at the call, with ``device="module"``, if no argument is a module.
    """
    if on_mismatch not in ("raise", "warn"):
        raise ValueError(f"device_check: on_mismatch is {on_mismatch!r}; it must be 'raise' or 'warn'")
    wanted: Any = device
    if device not in ("first", "module"):
        from devlint.runtime.move import as_device

        wanted = as_device(device)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"device_check takes parameter names, not {name!r}; write @device_check('x', 'y')")

    def decorate(function: F) -> F:
        if isinstance(function, (staticmethod, classmethod)) or not callable(function):
            raise TypeError(
                f"device_check decorates functions, not {function!r}; put it below @staticmethod and the like"
            )
        picker = _Arguments(function, names)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                try:
                    _check_call(picker, args, kwargs, wanted)
                except DeviceMismatchError as error:
                    if on_mismatch == "raise":
                        raise
                    warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            return function(*args, **kwargs)

        return cast(F, checked)

    return decorate


def guard_devices(module: torch.nn.Module) -> RemovableHandle:
    """Check, before each ``forward`` of a module, that its inputs are where its parameters and buffers are.

    A forward pre-hook, so it holds under ``python -O``, and a module without parameters is fine. ``remove()`` on the
    handle ends it. The parameters are all looked at in the first call and whenever the first one has moved. 0-dim CPU
    tensors among the inputs are let through. Under ``torch.compile`` it does nothing.

    The hook raises:
        DeviceMismatchError: naming the arguments of ``forward`` by path.
        MixedDeviceError: if parameters and buffers are on several devices, listing them by name.
    """
    seen: list[torch.device] = []
    picker = _Arguments(module.forward, ())

    def hook(owner: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        first = next((tensor.device for _, tensor in named_tensors(owner)), None)
        if first is None:
            return
        if seen != [first]:
            module_device(owner)
            seen[:] = [first]
        found = picker.tensors(args, kwargs)
        odd = [(path, tensor) for path, tensor in found if tensor.device != first and not _scalar(tensor)]
        if odd:
            name = type(owner).__name__
            raise _mismatch(
                f"{name} is on {first}, its inputs are not",
                odd,
                found,
                f"move the batch: devlint.runtime.to_device(batch, {str(first)!r}), or move {name} to it",
            )

    return module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


class _Arguments:
    """Finds the named arguments of a call without binding the whole signature."""

    def __init__(self, function: Callable[..., Any], names: tuple[str, ...]) -> None:
        self.title = getattr(function, "__qualname__", type(function).__name__)
        try:
            self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
        except (TypeError, ValueError):
            raise TypeError(f"device_check cannot read the parameters of {self.title}") from None
        for name in names:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise TypeError(f"device_check: {self.title} has no parameter {name!r}; it has: {known}")
        self.names = names or tuple(self.parameters)
        self.order = {name: index for index, name in enumerate(self.parameters)}

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """The named arguments that the call passes or that have defaults; missing ones are the function's to report."""
        found = []
        for name in self.names:
            parameter = self.parameters[name]
            index = self.order[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                rest: Any = {key: value for key, value in kwargs.items() if key not in self.parameters}
                found.append((name, rest))
            elif parameter.kind is parameter.VAR_POSITIONAL:
                found.append((name, args[index:]))
            elif name in kwargs and parameter.kind is not parameter.POSITIONAL_ONLY:
                found.append((name, kwargs[name]))
            elif index < len(args) and parameter.kind is not parameter.KEYWORD_ONLY:
                found.append((name, args[index]))
            elif parameter.default is not parameter.empty:
                found.append((name, parameter.default))
        return found

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
        """Every tensor in the named arguments, by path."""
        return [pair for name, value in self.values(args, kwargs) for pair in tensors(value, name)]


def _check_call(picker: _Arguments, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Any) -> None:
    where = f" in {picker.title}"
    if wanted == "module":
        module = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.nn.Module)), None)
        if module is None:
            raise TypeError(f"device_check(device='module'): no argument of {picker.title} is a module")
        found = [
            pair
            for name, value in picker.values(args, kwargs)
            if not isinstance(value, torch.nn.Module)
            for pair in tensors(value, name)
        ]
        if next(named_tensors(module), None) is not None:
            _agree(found, module_device(module), where)
        return
    found = picker.tensors(args, kwargs)
    if wanted == "first":
        _agree(found, None, where)
        return
    odd = [(path, tensor) for path, tensor in found if not _on(tensor, wanted)]
    if odd:
        raise _mismatch(f"not on {wanted}{where}", odd, found, f"move them to {wanted} before the call")


def _agree(found: list[tuple[str, torch.Tensor]], device: torch.device | None, where: str) -> None:
    """All on the given device, or on that of the first tensor; 0-dim CPU tensors go anywhere."""
    for path, tensor in found:
        if (device is not None and tensor.device == device) or _scalar(tensor):
            continue
        if device is None:
            device = tensor.device
            continue
        devices = {p: t.device for p, t in found if not _scalar(t)}
        count = len({*devices.values(), device})
        odd = f"{path}{_shape(tensor)} is on {tensor.device}, not on {device}"
        raise DeviceMismatchError(
            f"tensors on {count} devices{where}: {odd}\n{by_device(devices)}\n"
            f"move them together: devlint.runtime.to_device(batch, {str(device)!r})",
            devices,
        )


def _mismatch(
    head: str, odd: list[tuple[str, torch.Tensor]], found: list[tuple[str, torch.Tensor]], advice: str
) -> DeviceMismatchError:
    lines = by_device((path + _shape(tensor), tensor.device) for path, tensor in odd)
    return DeviceMismatchError(f"{head}:\n{lines}\n{advice}", {path: tensor.device for path, tensor in found})


def _shape(tensor: torch.Tensor) -> str:
    return f" of shape {tuple(tensor.shape)}"


def _scalar(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and tensor.device.type == "cpu"


def _on(tensor: torch.Tensor, wanted: torch.device) -> bool:
    return tensor.device == wanted or (wanted.index is None and tensor.device.type == wanted.type)
