"""Autocast and gradient scaling for a rehearsed device, by CUDA's own operator lists.

``autocast("cuda")`` switches the CPU's autocast on with CUDA's dtype. An autocast kernel with CUDA's policy stands in
for each operator of CUDA's lists while the rehearsal runs: it casts tensors of the device, and leaves those of the
host to the host's own autocast. The lists are read from the header that ships with the installed torch.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import torch

from devlint.runtime._rehearse import private_api
from devlint.runtime._rehearse.dispatch import call_device
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import Rehearsal

_KEY = "AutocastCPU"
_BANNED = "binary_cross_entropy"
_BANNED_TEXT = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


def lists(header: str) -> dict[str, list[str]]:
    """Policy macro -> operator names (``name`` or ``name.overload``) of ``ATen/autocast_mode.h``."""
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"#define AT_FORALL_(\w+)\(_\)((?:.*\\\n)*.*)", header):
        entries = re.findall(r"_\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)", match.group(2))
        found[match.group(1)] = [f"{name}.{overload}" if overload else name for name, overload in entries]
    return found


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for autocast and ``GradScaler``'s availability check."""
    _stand_in_for_contexts(session, patches)
    if session.kind == "cuda":
        _install_kernels(session, patches)
    import torch.amp.grad_scaler
    import torch.cuda.amp.common

    for module in (torch.amp.grad_scaler, torch.cuda.amp.common):
        if hasattr(module, "amp_definitely_not_available"):
            patches.set(module, "amp_definitely_not_available", lambda: False)


def _stand_in_for_contexts(session: Rehearsal, patches: Patches) -> None:
    autocast = torch.amp.autocast_mode.autocast
    enter: Any = autocast.__enter__
    leave: Any = autocast.__exit__

    def mirrored(context: Any) -> Any:
        before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), session.amp, session.host_amp
        result = enter(context)
        if context.device in (session.kind, "cpu"):
            own = context.device == session.kind
            context.__dict__.setdefault("_rehearsed", []).append(before)
            enabled = torch.is_autocast_enabled(context.device)
            dtype = torch.get_autocast_dtype(context.device) if enabled else None
            session.amp, session.host_amp = (dtype, session.host_amp) if own else (session.amp, dtype)
            torch.set_autocast_enabled("cpu", session.amp is not None or session.host_amp is not None)
            torch.set_autocast_dtype("cpu", session.amp or session.host_amp or torch.bfloat16)
        return result

    def restored(context: Any, *error: Any) -> Any:
        result = leave(context, *error)
        if context.__dict__.get("_rehearsed"):
            enabled, dtype, session.amp, session.host_amp = context._rehearsed.pop()
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_dtype("cpu", dtype)
        return result

    patches.set(autocast, "__enter__", mirrored)
    patches.set(autocast, "__exit__", restored)


@functools.lru_cache(maxsize=1)
def _policies() -> tuple[tuple[str, str], ...]:
    """(operator, policy) of CUDA's autocast."""
    header = private_api.autocast_header()
    if header is None:
        return ()
    macros = lists(header)
    found: list[tuple[str, str]] = []
    policies = {"LOWER_PRECISION_FP": "low", "FP32": "fp32", "FP32_SET_OPT_DTYPE": "opt", "PROMOTE": "promote"}
    for macro, policy in policies.items():
        found += [(name, policy) for name in macros.get(macro, [])]
    return (*found, (_BANNED, "banned"), ("norm.Scalar", "norm"), ("norm.ScalarOpt_dim", "norm"))


def _install_kernels(session: Rehearsal, patches: Patches) -> None:
    make_library: Any = torch.library.Library
    library = make_library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, policy in _policies():
            try:
                operator = _operator(name)
            except AttributeError:
                continue  # not in this torch
            library.impl(name, _kernel(session, operator, policy), _KEY, allow_override=True)
    patches.call_after(library._destroy)


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _kernel(session: Rehearsal, operator: Any, policy: str) -> Any:
    exclude = torch._C._ExcludeDispatchKeyGuard
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
    names = [argument.name for argument in operator._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with exclude(keys):
            low = session.amp if call_device(session, args, kwargs) is not None else session.host_amp
            if low is None or (low is not session.amp and policy != "low"):
                return operator(*args, **kwargs)
            if policy == "banned":
                raise session.fail(_BANNED_TEXT, _BANNED, "TDL413")
            if policy == "opt":
                given = dict(zip(names, args, strict=False)) | kwargs
                if given.get("dtype") is None and _floating(args[0]):
                    given["dtype"] = torch.float32 if args[0].dtype in (torch.float16, torch.bfloat16) else None
                return operator(**given)
            target = low if policy == "low" else torch.float32
            if policy == "promote":
                target = low if not _any_wide(args) else torch.float32
            return operator(
                *(_cast(value, target) for value in args),
                **{key: _cast(value, target) for key, value in kwargs.items()},
            )

    return kernel


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _any_wide(values: Any) -> bool:
    return any(
        (_floating(value) and value.dtype is torch.float32) or (isinstance(value, (list, tuple)) and _any_wide(value))
        for value in values
    )


def _cast(value: Any, target: torch.dtype) -> Any:
    if _floating(value) and value.dtype is not torch.float64 and value.dtype is not target:
        return value.to(target)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return type(value)(_cast(item, target) for item in value)
    return value
