"""What the rehearsal runs in another way than CUDA does: compiled code eagerly, optimizers and Functions watched."""

from __future__ import annotations

import sys
from typing import Any

import torch

from devlint.runtime._rehearse import frames, private_api
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import INTERNAL, Rehearsal


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for ``torch.compile``; count optimizer steps; check what custom Functions return."""
    _compile(session, patches)
    _grouping(session, patches)
    _steps(session, patches)
    _functions(session, patches)
    _root_gradients(session, patches)
    _profiler(session, patches)


def _compile(session: Rehearsal, patches: Patches) -> None:
    def compile_(model: Any = None, **options: Any) -> Any:
        session.report.note("torch.compile: run eagerly, not compiled")
        if model is None:
            return lambda function: function
        return model

    def compile_module(module: Any, *args: Any, **options: Any) -> None:
        session.report.note("torch.compile: run eagerly, not compiled")

    script: Any = torch.jit.script

    def script_(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if frames.is_foreign(sys._getframe(1).f_code):
            return script(obj, *args, **kwargs)  # torch's own
        if isinstance(obj, (torch.nn.Module, type)):
            session.report.note("torch.jit.script: tensors that a scripted module makes are taken for the host's")
            return script(obj, *args, **kwargs)
        session.report.note("torch.jit.script: functions are run eagerly, not scripted")
        return obj

    patches.set(torch.jit, "script", script_)
    patches.set(torch, "compile", compile_)
    patches.set(torch.nn.Module, "compile", compile_module)


def _grouping(session: Rehearsal, patches: Patches) -> None:
    """The foreach optimizers group tensors by device in C++, which sees the CPU only."""

    def group(lists: Any, with_indices: bool = False) -> Any:
        found: dict[Any, Any] = {}
        for (device, dtype), (columns, indices) in private_api.group_tensors(lists, with_indices).items():
            for row, tensor in enumerate(columns[0]):
                where = session.shown_device(tensor) if tensor is not None else device
                group_columns, group_indices = found.setdefault((where, dtype), ([[] for _ in columns], []))
                for own, column in zip(group_columns, columns, strict=True):
                    if column:
                        own.append(column[row])
                if indices:
                    group_indices.append(indices[row])
        return found

    patches.set(private_api.C, "_group_tensors_by_device_and_dtype", group)


def _steps(session: Rehearsal, patches: Patches) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def count(optimizer: Any, args: Any, kwargs: Any) -> None:
        session.report.steps += 1

    handle = register_optimizer_step_post_hook(count)
    patches.call_after(handle.remove)


def _functions(session: Rehearsal, patches: Patches) -> None:
    """The engine checks that each gradient lies where its input does; in C++ all lie on the CPU."""
    function = torch.autograd.Function
    backward = private_api.autograd_context()
    real_apply, real_backward = function.apply.__func__, backward.apply  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = real_apply(cls, *args, **kwargs)
        for item in result if isinstance(result, tuple) else (result,):
            node = item.grad_fn if isinstance(item, torch.Tensor) else None
            if isinstance(node, backward):
                node._rehearsed_devices = [
                    session.device_of(arg) if isinstance(arg, torch.Tensor) else None for arg in args
                ]
                break
        return result

    def run_backward(node: Any, *gradients: Any) -> Any:
        result = real_backward(node, *gradients)
        devices = getattr(node, "_rehearsed_devices", ())
        for index, item in enumerate(result if isinstance(result, tuple) else (result,)):
            if not isinstance(item, torch.Tensor) or index >= len(devices) or devices[index] is None:
                continue
            have, wanted = session.device_of(item), devices[index]
            if INTERNAL not in (have, wanted) and have != wanted:
                raise session.fail(
                    f"Function {type(node).__name__} returned an invalid gradient at index {index} - expected device "
                    f"{wanted} but got {have}",
                    "backward",
                    "TDL103",
                    forward=session.forward_line(node),
                )
        return result

    patches.set(function, "apply", classmethod(apply))
    patches.set(torch.Tensor, "register_hook", _checked_hooks(session))
    patches.set(backward, "apply", run_backward)


def _root_gradients(session: Rehearsal, patches: Patches) -> None:
    """A gradient handed to ``backward`` or ``autograd.grad`` must lie where its output does."""
    make = private_api.make_grads()

    def checked(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        for index, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
            if not (isinstance(output, torch.Tensor) and isinstance(grad, torch.Tensor)):
                continue
            have, wanted = session.device_of(grad), session.device_of(output)
            if INTERNAL not in (have, wanted) and have != wanted:
                name = type(output.grad_fn).__name__
                raise session.fail(
                    f"Function {name} returned an invalid gradient at index {index} - expected device {wanted} but "
                    f"got {have}",
                    "backward",
                    "TDL103",
                )
        return make(outputs, grads, *args, **kwargs)

    patches.set(torch.autograd, "_make_grads", checked)


def _profiler(session: Rehearsal, patches: Patches) -> None:
    """The profiler can time the host only; ranges that nobody records are not entered: each is four operators."""
    profile: Any = torch.autograd.profiler.profile
    make: Any = profile.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_cuda") or kwargs.get("use_device") == session.kind:
            session.report.note(f"profiler: the times are the host's, there is no {session.kind} to time")
            kwargs = {**kwargs, "use_device": None, "use_cuda": False}
        make(self, *args, **kwargs)

    patches.set(profile, "__init__", init)
    record: Any = torch.autograd.profiler.record_function
    enter, leave = record.__enter__, record.__exit__

    def entered(self: Any) -> Any:
        return enter(self) if private_api.profiler_enabled() else self

    def left(self: Any, *error: Any) -> None:
        if self.record is not None:
            leave(self, *error)

    patches.set(record, "__enter__", entered)
    patches.set(record, "__exit__", left)


def _checked_hooks(session: Rehearsal) -> Any:
    """``Tensor.register_hook`` whose hooks may not move the gradient, as the engine checks by type."""
    register: Any = torch.Tensor.register_hook

    def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
        def checked(gradient: Any) -> Any:
            result = hook(gradient)
            if isinstance(result, torch.Tensor):
                have, own = session.device_of(result), session.device_of(gradient)
                if INTERNAL not in (have, own) and have != own:
                    name = getattr(hook, "__name__", "hook")
                    raise session.fail(
                        f"hook '{name}' has changed the type of value (was {gradient.type()} got {result.type()})",
                        "backward",
                        "TDL103",
                    )
            return result

        with private_api.no_torch_function():
            return register(tensor, checked)

    return register_hook
