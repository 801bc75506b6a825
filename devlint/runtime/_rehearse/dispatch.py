"""The aten layer: checks each operator's devices and passes tags on to its results."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devlint.runtime._rehearse import checks
from devlint.runtime._rehearse.asserts import asserted
from devlint.runtime._rehearse.moves import poison
from devlint.runtime._rehearse.private_api import (
    current_autograd_node,
    function_mode_active,
    no_torch_function,
    sequence_number,
    storage_id,
    untyped_storage,
)
from devlint.runtime._rehearse.state import CPU, INTERNAL, Rehearsal

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
_NO_TENSORS = frozenset((int, float, bool, list, tuple, type(None), torch.dtype, torch.device))
_LOW = (torch.float16, torch.bfloat16)
_MISSING = (
    "not implemented for 'Half'",
    "not implemented for 'BFloat16'",
    "unsupported dtype",
    "not supported for Half",
    "could not create a primitive",
    '"histogram_cpu" not implemented for',  # whole numbers: CUDA counts them
)
_MIXED = object()
plans = checks._plans


class DispatchLayer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Pushed while a rehearsal runs; sees every operator of forward and backward below autograd."""

    def __init__(self, session: Rehearsal) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session

    def _handle(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        session = self.session
        kwargs = kwargs or {}
        entries = session.entries
        session.operators += 1
        if not entries:
            return func(*args, **kwargs)
        plan = plans.get(id(func))
        if plan is None or plan.operator is not func:
            plan = checks.plan_of(func)
        if plan.view and _settled(entries, args):
            if function_mode_active():
                with no_torch_function():
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        device = _common(entries, args)
        if kwargs and device is not _MIXED:
            device = _with(entries, device, kwargs.values())
        uniform = False
        if device is CPU:
            if plan.base != "_to_copy" or kwargs.get("device") is None:
                return func(*args, **kwargs)
            device = None  # C++ copies to another tensor's device, which it takes for the CPU
        if device is None:
            device = _made_by_torch(session)
            if device is None:
                return func(*args, **kwargs)
        elif (
            device is _MIXED
            or plan.special
            or plan.sync is not None
            or device is INTERNAL
            or (plan.dtype_check is not None and not args[-1].dtype.is_floating_point)
        ):
            device = checks.check(session, plan, args, kwargs)
            if device is None:
                return func(*args, **kwargs)
        else:
            uniform = True
        if plan.composite and hasattr(func, "decompose") and device is not INTERNAL:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if plan.copies:
            late = _record_copies(session, args)
        else:
            late = None
        if torch.is_grad_enabled() and sequence_number() not in session.lines:
            session.remember_line()
        if function_mode_active():
            with no_torch_function():  # in a backward pass: no second round through the Python layer
                return self._run(plan, func, args, kwargs, device, uniform, late)
        return self._run(plan, func, args, kwargs, device, uniform, late)

    def _run(self, plan: Any, func: Any, args: Any, kwargs: Any, device: Any, uniform: bool, late: Any) -> Any:
        """Run the operator and tag its results; ``uniform``: every argument is tagged with ``device``."""
        session = self.session
        try:
            result = func(*args, **kwargs) if plan.aten else _custom(session, func, args, kwargs)
        except (RuntimeError, NotImplementedError, IndexError) as error:
            assertion = asserted(session, plan, args, kwargs, error) if device is not CPU else None
            if assertion is not None:
                raise assertion from error
            if not any(text in str(error) for text in _MISSING):
                raise
            result, dtype = _wider(func, args, kwargs, error)
            session.report.note(f"{func}: run in a wider dtype, the CPU has no kernel for {dtype}")
        if late:
            for target in late:
                poison(session, target)
        if device is CPU or device is None:
            return result
        if type(result) is Tensor:
            try:
                key = storage_id(result)
            except (NotImplementedError, RuntimeError):
                session.tags.set(result, device)
                return result
            if key in session.entries:
                return result
            if uniform:
                session.tags.add(key, untyped_storage(result), device)
                return result
        _tag_results(session, plan, device, args, result)
        return result


# assigned here because torch wraps a method of this name in the class body to keep the compiler out: 3 us an operator
DispatchLayer.__torch_dispatch__ = DispatchLayer._handle  # type: ignore[method-assign,assignment]


def _custom(session: Rehearsal, func: Any, args: Any, kwargs: Any) -> Any:
    """A custom operator's kernel runs as the CPU's; its arguments and results are the device's."""
    if func.namespace != "c10d":
        session.report.note(f"custom operator {func}: its arguments are checked, what it does inside is not")
    session.on_host += 1
    try:
        return func(*args, **kwargs)
    finally:
        session.on_host -= 1


def _settled(entries: Any, args: Any) -> bool:
    """Whether a view's tensor has a storage of its own, with a device that is known."""
    try:
        tag = entries.get(storage_id(args[0]))
    except (NotImplementedError, RuntimeError, IndexError):
        return False
    return tag is None or tag[1] is not INTERNAL


def _common(entries: Any, values: Any) -> Any:
    """The one device of all tensors among ``values`` (lists too); None without tensors; ``_MIXED`` otherwise."""
    device = None
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter or (kind not in _NO_TENSORS and isinstance(value, Tensor)):
            try:
                tag = entries.get(storage_id(value))
            except (NotImplementedError, RuntimeError):
                return _MIXED
            found = CPU if tag is None else tag[1]
        elif kind is list or kind is tuple:
            found = _common(entries, value)
            if found is None:
                continue
        else:
            continue
        if device is None:
            device = found
        elif found is not device:
            return _MIXED
    return device


def _with(entries: Any, device: Any, values: Any) -> Any:
    found = _common(entries, values)
    if found is None or found is device:
        return device
    return found if device is None else _MIXED


def _made_by_torch(session: Rehearsal) -> Any:
    """A factory without tensor arguments: ``INTERNAL`` where C++ calls it for an operator on device tensors."""
    if session.explicit:
        return None
    if session.call is not None:
        _, args, kwargs = session.call
        return INTERNAL if call_device(session, args, kwargs) is not None else None
    return INTERNAL if current_autograd_node() is not None else None


def call_device(session: Rehearsal, args: Any, kwargs: Any) -> Any:
    """The first rehearsed device among the tensors of a Python-level call."""
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, Tensor):
            device = session.device_of(value)
            if session.rehearsed(device):
                return device
        elif isinstance(value, (list, tuple)):
            device = call_device(session, value, None)
            if device is not None:
                return device
    return None


def _record_copies(session: Rehearsal, args: Any) -> list[Tensor]:
    """Count the copies between devices; return the pinned host tensors that are filled later."""
    late = []
    targets, sources = (args[0], args[1]) if isinstance(args[0], (list, tuple)) else ([args[0]], [args[1]])
    for target, source in zip(targets, sources, strict=False):
        if not isinstance(source, Tensor):
            continue
        to, origin = session.device_of(target), session.device_of(source)
        if to is INTERNAL:
            session.place(target, origin)
        elif to is not origin and origin is not INTERNAL and (session.rehearsed(to) or session.rehearsed(origin)):
            waits = session.rehearsed(origin) and not session.rehearsed(to) and not session.pinned(target)
            non_blocking = bool(args[2]) if len(args) > 2 and not waits else False
            session.transfer(origin, to, source, non_blocking)
            if non_blocking and to is CPU:
                late.append(target)
    return late


def _tag_results(session: Rehearsal, plan: checks.Plan, device: Any, args: Any, result: Any) -> None:
    entries = session.entries
    if isinstance(result, Tensor):
        results: Any = (result,)
    elif isinstance(result, (list, tuple)):
        results = result
    else:
        return
    if device is INTERNAL:
        session.internals += 1
    given: set[int] | None = None
    for index, item in enumerate(results):
        if isinstance(item, (list, tuple)):
            _tag_results(session, plan, device, args, item)
            continue
        if not isinstance(item, Tensor):
            continue
        try:
            key = storage_id(item)
        except (NotImplementedError, RuntimeError):
            key = None
        if key is not None:
            if key in entries:
                continue
            if given is None:
                given = _storages(args)
            if key in given:
                continue  # an in-place result, or a view, of an untagged (CPU) tensor
            if plan.base == "_pack_padded_sequence" and index == 1:
                continue  # batch_sizes stays on the CPU
        session.tags.set(item, device)


def _storages(values: Any) -> set[int]:
    found: set[int] = set()
    for value in values:
        if isinstance(value, Tensor):
            try:
                found.add(storage_id(value))
            except (NotImplementedError, RuntimeError):
                continue
        elif isinstance(value, (list, tuple)):
            found |= _storages(value)
    return found


def _wider(func: Any, args: Any, kwargs: Any, error: Exception) -> tuple[Any, str]:
    """Run in a wider dtype what the CPU has no kernel for in the tensors' own; results are cut back to that."""
    narrow: list[torch.dtype] = []
    whole = "histogram" in str(error)

    def up(value: Any) -> Any:
        if isinstance(value, Tensor) and (value.dtype in _LOW or (whole and value.dtype in checks._INTEGRAL)):
            narrow.append(value.dtype)
            return value.double() if whole else value.float()
        if isinstance(value, (list, tuple)):
            return type(value)(up(item) for item in value)
        return value

    def down(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype is (torch.float64 if whole else torch.float32):
            return value.to(narrow[0])
        if isinstance(value, (list, tuple)):
            return type(value)(down(item) for item in value)
        return value

    with no_torch_function():
        raised = [up(value) for value in args], {key: up(value) for key, value in kwargs.items()}
        if not narrow or func._schema.is_mutable:
            raise error
        return down(func(*raised[0], **raised[1])), str(narrow[0]).removeprefix("torch.")
