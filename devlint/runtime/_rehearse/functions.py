"""The Python layer: factories with a device, and the origin of tensors that torch's C++ makes by itself."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from devlint.runtime._rehearse import composites, private_api
from devlint.runtime._rehearse.dispatch import call_device
from devlint.runtime._rehearse.moves import move, refuse_dtype
from devlint.runtime._rehearse.rng import device_of_generator
from devlint.runtime._rehearse.state import CPU, INTERNAL, Rehearsal

Tensor = torch.Tensor
_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
# Python functions of torch.nn.functional that call no factory and no .to(): run without the mode inside
_LEAVES = {
    "relu", "dropout", "layer_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss", "embedding", "batch_norm",
    "group_norm", "mse_loss", "l1_loss", "smooth_l1_loss", "leaky_relu", "silu", "sigmoid", "tanh", "normalize",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "_max_pool2d", "_max_pool1d", "adaptive_avg_pool2d",
    "glu", "elu", "selu", "hardtanh", "hardswish", "instance_norm", "kl_div",
}  # fmt: skip
_READ, _PLAIN, _WATCHED = 1, 2, 3  # how the layer treats a function
_DATA_FACTORIES = (torch.tensor, torch.as_tensor, torch.asarray)


def _getters() -> set[Any]:
    base = private_api.Base
    names = (
        "shape", "dtype", "requires_grad", "grad_fn", "is_leaf", "ndim", "layout", "is_sparse", "data", "names",
        "is_nested", "is_quantized", "is_mkldnn", "is_meta", "itemsize", "nbytes", "output_nr", "_version",
    )  # fmt: skip
    found = {getattr(base, name).__get__ for name in names if hasattr(base, name)}
    methods = ("dim", "size", "numel", "stride", "is_floating_point", "is_complex", "requires_grad_", "storage_offset")
    found |= {getattr(base, name) for name in methods}
    found |= {Tensor.__len__, private_api.parse_to, base.untyped_storage, base.element_size, base.is_contiguous}
    return found | {private_api.C._set_grad_enabled}


def _no(*_: Any) -> bool:
    return False


@functools.cache
def _body(function: Any) -> Any:
    """The same code with its own ``has_torch_function`` guard off, so that calls inside it reach the mode."""
    scope = dict(function.__globals__)
    scope.update(dict.fromkeys(_GUARDS, _no))
    closure = function.__closure__
    if _dispatches(function):
        closure = tuple(
            types.CellType(_body(cell.cell_contents)) if _opens(cell.cell_contents) else cell for cell in closure
        )
    copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


@functools.cache
def _opens(function: Any) -> bool:
    """Whether ``function`` is Python code of torch's whose inner calls must reach the mode."""
    if type(function) is not types.FunctionType or function.__module__.startswith(__name__.partition(".")[0]):
        return False
    if function.__module__ == "torch.nn.functional" and function.__name__ in _LEAVES:
        return False
    if any(name in _GUARDS and name in function.__globals__ for name in function.__code__.co_names):
        return True
    return _dispatches(function) and any(_opens(cell.cell_contents) for cell in function.__closure__ or ())


def _dispatches(function: Any) -> bool:
    """Whether ``boolean_dispatch`` made it: the two functions that it chooses from are in its closure."""
    code = function.__code__
    return code.co_name == "fn" and code.co_filename.endswith("_jit_internal.py") and bool(function.__closure__)


def forget_bodies() -> None:
    """Drop the copies of torch's functions: they hold the names of their modules as they were."""
    _body.cache_clear()


class FunctionLayer(TorchFunctionMode):
    """Pushed while a rehearsal runs; sees each call of torch's Python API."""

    def __init__(self, session: Rehearsal) -> None:
        super().__init__()
        self.session = session
        self.factories = private_api.device_constructors()
        self.getters = _getters()
        self.checks = composites.checks()
        self.running: set[Any] = set()
        self.kinds: dict[Any, int] = {}

    def _kind(self, func: Any) -> int:
        """How ``func`` is treated, worked out once."""
        watched = (Tensor.new_tensor, Tensor.new, torch.ctc_loss)
        if func in self.getters:
            kind = _READ
        elif _opens(func) or func in self.factories or func in self.checks or func in watched:
            kind = _WATCHED
        else:
            kind = _PLAIN
        self.kinds[func] = kind
        return kind

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = self.kinds.get(func) or self._kind(func)
        if kind == _READ:
            return func(*args, **kwargs) if kwargs else func(*args)
        if kind == _PLAIN and (not kwargs or ("device" not in kwargs and kwargs.get("generator") is None)):
            return self._run(func, args, kwargs or {})
        if _opens(func) and func not in self.running:
            return self._open(func, args, kwargs or {})
        session = self.session
        factory = func in self.factories
        if kwargs or factory:
            kwargs = kwargs or {}
            if kwargs.get("generator") is not None:
                self._check_generator(func, args, kwargs, factory)
            device = kwargs.get("device")
            if factory or device is not None:
                return self._place(func, args, dict(kwargs), device, factory)
        else:
            kwargs = {}
        if func is Tensor.new_tensor or func is Tensor.new:
            return self._new_tensor(func, args, kwargs)
        if func in self.checks:
            self.checks[func](session, args, kwargs)
        if func is torch.ctc_loss:
            args = self._lengths_anywhere(args)
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call ``func``; what C++ makes inside by itself takes the device of the call's tensors."""
        session = self.session
        outer, session.call = session.call, (func, args, kwargs)
        explicit, session.explicit = session.explicit, False
        internals = session.internals
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        finally:
            session.call, session.explicit = outer, explicit
        if session.internals != internals:
            self._settle(result, args, kwargs)
        return result

    def _open(self, func: Any, args: Any, kwargs: Any) -> Any:
        session = self.session
        self.running.add(func)
        outer, session.call = session.call, None
        try:
            with self:
                return _body(func)(*args, **kwargs)
        finally:
            session.call = outer
            self.running.discard(func)

    def _settle(self, result: Any, args: Any, kwargs: Any) -> None:
        """A result that C++ made by itself belongs to the device of the call's tensors."""
        session = self.session
        for item in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(item, Tensor) and session.device_of(item) is INTERNAL:
                session.place(item, call_device(session, args, kwargs) or CPU)

    def _place(self, func: Any, args: Any, kwargs: dict[str, Any], device: Any, factory: bool) -> Any:
        session = self.session
        data = args[0] if args and func in _DATA_FACTORIES else None
        if device is None and factory and not (isinstance(data, Tensor) and data is not None):
            device = private_api.default_device()
        target = session.resolve(device) if device is not None else None
        if isinstance(data, Tensor):
            where = target or (device if device is not None else session.shown_device(data))
            where = torch.device(where) if not isinstance(where, torch.device) else where
            moved = move(session, data, CPU if where.type == "cpu" else where, kwargs.get("dtype"))
            return moved.detach().clone() if func is torch.tensor else moved
        if data is not None and call_device(session, data if isinstance(data, (list, tuple)) else (), None):
            session.sync("device tensors read into a new tensor")
        if target is not None:
            kwargs["device"] = CPU
            if kwargs.get("pin_memory"):
                raise session.fail(
                    "Only dense CPU tensors can be pinned", getattr(func, "__name__", "factory"), "TDL304"
                )
            refuse_dtype(session, target, kwargs.get("dtype") or torch.float32)
        elif kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
            return self._made(func, args, kwargs, CPU, True)
        elif device is not None and torch.device(device).type != "cpu":
            return func(*args, **kwargs)
        return self._made(func, args, kwargs, target or CPU, False)

    def _made(self, func: Any, args: Any, kwargs: dict[str, Any], device: Any, pinned: bool) -> Any:
        """Call the factory on the host, and tag what it made with its device and line."""
        session = self.session
        explicit, session.explicit = session.explicit, True
        try:
            result = func(*args, **kwargs)
        finally:
            session.explicit = explicit
        if isinstance(result, Tensor) and not any(result is arg for arg in args):
            session.place(result, device, "created", pinned)
        return result

    def _new_tensor(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self.session.place(result, self.session.shown_device(args[0]), "created")
        return result

    def _lengths_anywhere(self, args: Any) -> Any:
        """``ctc_loss`` copies its lengths to the device of the losses, which C++ takes for the CPU."""
        lengths = []
        for value in args[2:4]:
            if isinstance(value, Tensor) and self.session.device_of(value) is CPU:
                value = value.clone()
                self.session.place(value, INTERNAL)
            lengths.append(value)
        return (*args[:2], *lengths, *args[4:])

    def _check_generator(self, func: Any, args: Any, kwargs: Any, factory: bool) -> None:
        session = self.session
        made = device_of_generator(kwargs["generator"], session)
        device = kwargs.get("device")
        if device is None and factory:
            device = private_api.default_device()
        if device is not None:
            wanted = session.resolve(device) or torch.device(device)
        else:
            wanted = call_device(session, args, kwargs) or CPU
        if wanted.type != made.type:
            raise session.fail(
                f"Expected a '{wanted.type}' device type for generator but found '{made.type}'",
                getattr(func, "__name__", str(func)),
                "TDL115",
            )
