"""``torch.Tensor``'s device methods and attributes while a rehearsal runs.

Set on the class, not in the function mode: so they also hold in hooks, in loader and pinning threads and inside
torch's own handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from devlint.runtime._rehearse.device_type import parse_to
from devlint.runtime._rehearse.moves import move
from devlint.runtime._rehearse.private_api import Base, no_torch_function
from devlint.runtime._rehearse.state import CPU, INTERNAL, Rehearsal
from devlint.runtime._rehearse.unsupported import refuse_kind

Tensor = torch.Tensor
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)


def overrides(session: Rehearsal) -> dict[str, Any]:
    """Name -> attribute to set on ``torch.Tensor``."""
    return {**_attributes(session), **_moves(session), **_reads(session), **_memory(session)}


def _attributes(session: Rehearsal) -> dict[str, Any]:
    def is_on(kind: str) -> property:
        return property(lambda tensor: session.shown_device(tensor).type == kind)

    read_grad = Base.grad.__get__

    def get_grad(tensor: Tensor) -> Any:
        with no_torch_function():
            grad = read_grad(tensor)
        if grad is not None and session.device_of(grad) is INTERNAL:
            session.place(grad, session.device_of(tensor))
        return grad

    def set_grad(tensor: Tensor, grad: Any) -> None:
        if isinstance(grad, Tensor):
            have, own = session.device_of(grad), session.device_of(tensor)
            if have is not INTERNAL and have != own:
                raise session.fail(
                    f"attempting to assign a gradient with device type '{have.type}' to a tensor with device type "
                    f"'{own.type}'. Please ensure that the gradient and the tensor are on the same device",
                    "grad",
                    "TDL103",
                )
        with no_torch_function():
            Base.grad.__set__(tensor, grad)

    def delete_grad(tensor: Tensor) -> None:
        with no_torch_function():
            Base.grad.__delete__(tensor)

    def get_device(tensor: Tensor) -> int:
        index = session.shown_device(tensor).index
        return -1 if index is None else int(index)

    return {
        "device": property(session.shown_device),
        "is_cuda": is_on("cuda"),
        "is_xpu": is_on("xpu"),
        "is_mps": is_on("mps"),
        "is_cpu": is_on("cpu"),
        "grad": property(get_grad, set_grad, delete_grad),
        "get_device": get_device,
    }


def _moves(session: Rehearsal) -> dict[str, Any]:
    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        other = args[0] if args and isinstance(args[0], Tensor) else kwargs.get("other")
        if isinstance(other, Tensor):
            rest = args[1:] if args else ()
            names = ("non_blocking", "copy")
            given = {**dict(zip(names, rest, strict=False)), **{k: v for k, v in kwargs.items() if k != "other"}}
            return move(session, tensor, session.shown_device(other), other.dtype, **given)
        copy = kwargs.pop("copy", False)
        if len(args) > 3:
            copy, args = args[3], args[:3]
        device, dtype, non_blocking, memory_format = parse_to(session, args, kwargs)
        target = session.resolve(device) if device is not None else None
        if device is None:
            with no_torch_function():
                same: Tensor = Base.to(tensor, *args, copy=copy, **kwargs)
            return same
        if target is None and device.type == "cpu":
            target = CPU
        return move(session, tensor, target or device, dtype, non_blocking, copy, memory_format)

    def to_kind(kind: str) -> Callable[..., Tensor]:
        def method(tensor: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
            target = session.resolve(device if device is not None else kind)
            if target is None:
                raise RuntimeError(f"Invalid device, must be {kind} device")
            return move(session, tensor, target, None, non_blocking, memory_format=memory_format)

        method.__name__ = kind
        return method

    def cpu(tensor: Tensor, memory_format: Any = None) -> Tensor:
        return move(session, tensor, CPU, memory_format=memory_format)

    def type_(tensor: Tensor, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        own = session.shown_device(tensor)
        prefix = f"torch.{session.kind}."
        if dtype is None:
            with no_torch_function():
                name: str = Base.type(tensor)
            return name.replace("torch.", prefix) if session.rehearsed(own) else name
        name = dtype if isinstance(dtype, str) else getattr(dtype, "rehearsed_name", "")
        if not name and isinstance(dtype, type(torch.FloatTensor)):
            name = f"{dtype.__module__}.{dtype.__name__}"
        if name:
            target = session.resolve(session.kind) if name.startswith(prefix) else CPU
            return move(session, tensor, target, legacy_dtype(name), non_blocking)
        with no_torch_function():
            return Base.type(tensor, dtype)

    methods: dict[str, Callable[..., Any]] = {
        session.kind: to_kind(session.kind),
        "to": to,
        "cpu": cpu,
        "type": type_,
    }
    return {name: _for_subclasses(session, method) for name, method in methods.items()}


def _for_subclasses(session: Rehearsal, method: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, with ``__torch_function__`` of a tensor subclass around it, as torch's own methods have."""

    @functools.wraps(method)
    def dispatching(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) not in _PLAIN and has_torch_function_unary(tensor):
            refuse_kind(session, tensor)
            return handle_torch_function(dispatching, (tensor,), tensor, *args, **kwargs)
        return method(tensor, *args, **kwargs)

    return dispatching


def legacy_dtype(name: str) -> torch.dtype:
    """The dtype of a legacy type name, such as ``torch.cuda.FloatTensor``."""
    names = {
        "FloatTensor": torch.float32,
        "DoubleTensor": torch.float64,
        "HalfTensor": torch.float16,
        "BFloat16Tensor": torch.bfloat16,
        "LongTensor": torch.int64,
        "IntTensor": torch.int32,
        "ShortTensor": torch.int16,
        "CharTensor": torch.int8,
        "ByteTensor": torch.uint8,
        "BoolTensor": torch.bool,
        "Tensor": torch.get_default_dtype(),
    }
    short = name.rsplit(".", 1)[-1]
    if short not in names:
        raise ValueError(f"invalid type: '{name}'")
    return names[short]


def _reads(session: Rehearsal) -> dict[str, Any]:
    original: Any = Tensor
    array, represent = original.__array__, original.__repr__
    copy_deep, format_ = original.__deepcopy__, original.__format__

    def refuse(tensor: Tensor) -> None:
        device = session.shown_device(tensor)
        if device.type != "cpu" and session.rehearsed(device):
            raise session.fail(
                f"can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                "memory first.",
                "numpy",
                "TDL107",
                error=TypeError,
            )

    def numpy(tensor: Tensor, *, force: bool = False) -> Any:
        if force:
            tensor = move(session, tensor, CPU)
        else:
            refuse(tensor)
        with no_torch_function():
            return Base.numpy(tensor, force=force)

    def to_array(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        refuse(tensor)
        with no_torch_function():
            return array(tensor, *args, **kwargs)

    def counted(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def method(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not session.rehearsed(session.device_of(tensor)):
                with no_torch_function():
                    return call(tensor, *args, **kwargs)
            session.sync(kind)
            entries, session.entries = session.entries, {}
            try:
                with no_torch_function():
                    return call(tensor, *args, **kwargs)
            finally:
                session.entries = entries

        return method

    def deepcopy(tensor: Tensor, memo: Any) -> Any:
        copy = copy_deep(tensor, memo)
        if isinstance(copy, Tensor):
            tag = session.tags.get(tensor)
            if tag is not None:
                session.tags.set(copy, tag.device, tag.origin, tag.pinned)
            if copy.grad is not None and tensor.grad is not None:
                session.tags.set(copy.grad, session.device_of(tensor.grad))
        return copy

    def formatted(tensor: Tensor, spec: str) -> str:
        if tensor.dim() == 0 and session.rehearsed(session.device_of(tensor)):
            return format(tensor.item(), spec)
        text: str = format_(tensor, spec)
        return text

    def on_host_only(name: str) -> Callable[..., Any]:
        call = getattr(Base, name)

        def method(tensor: Tensor, *args: Any) -> Any:
            if session.rehearsed(session.device_of(tensor)):
                raise session.fail(f"{name} is only implemented on CPU tensors", name, "TDL107", error=TypeError)
            with no_torch_function():
                return call(tensor, *args)

        return method

    return {
        **{name: on_host_only(name) for name in ("apply_", "map_", "map2_")},
        "numpy": numpy,
        "__array__": to_array,
        "tolist": counted("tolist", Base.tolist),
        "__repr__": counted("print", represent),
        "__deepcopy__": deepcopy,
        "__format__": formatted,
    }


def _memory(session: Rehearsal) -> dict[str, Any]:
    def pin_memory(tensor: Tensor, device: Any = None) -> Tensor:
        own = session.shown_device(tensor)
        if own.type != "cpu":
            raise session.fail(
                f"cannot pin '{Tensor.type(tensor)}' only dense CPU tensors can be pinned", "pin_memory", "TDL304"
            )
        if session.pinned(tensor):
            return tensor
        with no_torch_function():
            copy = tensor.detach().clone()
        session.place(copy, CPU, "pinned", True)
        return copy.requires_grad_() if tensor.requires_grad and tensor.is_leaf else copy

    def share_memory_(tensor: Tensor) -> Tensor:
        if session.rehearsed(session.device_of(tensor)):
            return tensor
        with no_torch_function():
            tensor.untyped_storage().share_memory_()
        return tensor

    return {
        "pin_memory": pin_memory,
        "is_pinned": lambda tensor, device=None: session.pinned(tensor),
        "record_stream": lambda tensor, stream: None,
        "share_memory_": share_memory_,
    }
