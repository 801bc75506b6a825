"""The device check of one aten operator, as CUDA makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from devlint.runtime._rehearse import messages, op_table, own_texts, waits
from devlint.runtime._rehearse.messages import Argument
from devlint.runtime._rehearse.state import CPU, INTERNAL, Rehearsal

Tensor = torch.Tensor
_INDEXING = {
    "index.Tensor",
    "_unsafe_index.Tensor",
    "index_put_",
    "index_put",
    "_index_put_impl_",
    "_unsafe_index_put",
}
# operators whose tensors may lie on different devices
_FREE = {
    "copy_",
    "copy",
    "_foreach_copy_",
    "set_.source_Tensor",
    "set_.source_Tensor_storage_offset",
    "detach",
    "alias",
    "lift_fresh",
    "lift",
    "clone",
    "_to_copy",
    "resize_as_",
    "slice_scatter",
    "select_scatter",
    "diagonal_scatter",
    "as_strided_scatter",
    "is_pinned",
    "record_stream",
    "detach_",
    "_has_compatible_shallow_copy_type",
    "is_same_size",
    "_pad_packed_sequence",
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    "new_empty",
    "new_zeros",
    "new_full",
    "new_empty_strided",
}
# kernels that the CPU uses where CUDA has another of the same meaning
_CPU_FORMS = ("mkldnn", "_mkldnn", "_scaled_dot_product_flash_attention_for_cpu", "fbgemm", "quantized", "_weight_int")
# public operators that CUDA has no kernel for
_CPU_ONLY = {"histogram", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"}
_INTEGRAL = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
_FLOAT_ONLY = {
    "mm": "addmm_cuda",
    "addmm": "addmm_cuda",
    "bmm": "baddbmm_cuda",
    "baddbmm": "baddbmm_cuda",
    "addmv": "addmv_impl_cuda",
    "mv": "addmv_impl_cuda",
    "dot": "dot",
}


# composed operators -> the argument and the CUDA wrapper that reports the mismatch
_INNER = {
    "embedding": ("index", "wrapper_CUDA__index_select"),
    "stack": ("tensors", "wrapper_CUDA_cat"),
}


class Plan:
    """What is known of one operator overload, worked out once."""

    __slots__ = (
        "aten",
        "base",
        "composite",
        "copies",
        "dtype_check",
        "exact",
        "foreach",
        "free",
        "full",
        "indexing",
        "inplace",
        "names",
        "no_cuda",
        "operator",
        "qualified",
        "special",
        "sync",
        "view",
        "wrapper",
    )

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        schema = operator._schema
        self.base: str = schema.name.split("::")[-1]
        overload: str = schema.overload_name
        self.full = f"{self.base}.{overload}" if overload else self.base
        self.aten = schema.name.startswith("aten::")
        rule = op_table.table().get(self.full) if self.aten else None
        kind = rule.kind if rule is not None else op_table.EXACT
        structured = rule is not None and rule.structured
        self.names = [argument.name for argument in schema.arguments]
        self.exact = kind in (op_table.EXACT, op_table.NO_KERNEL) or self.base in _INNER
        self.composite = kind == op_table.IMPLICIT
        self.wrapper = f"wrapper_CUDA_{self.base}" if structured else f"wrapper_CUDA_{overload}_{self.base}"
        self.free = self.full in _FREE or self.base in ("set_", "_thnn_fused_lstm_cell_backward")
        self.copies = self.base in ("copy_", "_foreach_copy_")
        self.indexing = self.full in _INDEXING
        self.sync = waits.kind_of(self.full, self.base)
        self.foreach = self.base.startswith(("_foreach", "_fused"))
        self.inplace = self.base.endswith("_") and not self.base.endswith("__")
        self.qualified: str = schema.name.split("::")[0] + "::" + self.full
        self.no_cuda = self.base in _CPU_ONLY or schema.name.startswith("quantized::")  # their packed weights too
        self.dtype_check = _FLOAT_ONLY.get(self.base)
        self.special = self.indexing or self.no_cuda or self.base == "_pack_padded_sequence"
        tensors = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
        # the result shares the storage of the one tensor: nothing to check, nothing to tag
        self.view = bool(operator.is_view) and not schema.is_mutable and not self.composite and len(tensors) == 1
        if self.base.startswith(_CPU_FORMS):
            self.sync = None


_plans: dict[int, Plan] = {}  # id(operator): an OpOverload's own hash is slow


def plan_of(operator: Any) -> Plan:
    """The plan of ``operator`` (an ``OpOverload``)."""
    found = _plans.get(id(operator))
    if found is None or found.operator is not operator:
        found = _plans[id(operator)] = Plan(operator)
    return found


def arguments_of(session: Rehearsal, plan: Plan, args: Iterable[Any], kwargs: dict[str, Any]) -> list[Argument]:
    """All tensor arguments, those in lists too, with the operator's names for them."""
    found: list[Argument] = []
    named = [*zip(plan.names, args, strict=False), *kwargs.items()]
    for name, value in named:
        if isinstance(value, Tensor):
            found.append(Argument(name, value, session.device_of(value)))
        elif isinstance(value, (list, tuple)):
            found += [
                Argument(f"{name}[{index}]", item, session.device_of(item))
                for index, item in enumerate(value)
                if isinstance(item, Tensor)
            ]
    return found


def check(session: Rehearsal, plan: Plan, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Check the arguments' devices; return the device of the result, None without tensor arguments.

    Raises ``RehearsedDeviceError`` where CUDA raises ``RuntimeError``.
    """
    found = arguments_of(session, plan, args, kwargs)
    if not found:
        return None
    known = [argument for argument in found if argument.device is not INTERNAL]
    if not known:
        return INTERNAL
    if len(known) != len(found) and not plan.free and not plan.indexing:
        for argument in found:
            if argument.device is INTERNAL:
                session.place(argument.tensor, known[0].device)
    first = known[0].device
    on_device = any(session.rehearsed(argument.device) for argument in known)
    if not on_device or plan.free:
        return first
    if plan.sync is not None and session.rehearsed(first) and waits.waits(plan.full, _given(plan, args, kwargs)):
        session.sync(plan.sync)
    if plan.special or plan.dtype_check is not None:
        _special(session, plan, known)
    if plan.indexing:
        return _indexing(session, plan, known, waits.fills_by_mask(_given(plan, args, kwargs)))
    if all(argument.device is first for argument in known):
        return first
    if plan.base == "_pack_padded_sequence":
        return first
    if plan.base in ("fill_", "fill"):
        if session.rehearsed(known[1].device):
            session.sync("number read from the device")
        return first
    if plan.base == "_ctc_loss":  # cuDNN takes int32 targets from the host; lengths may lie anywhere
        given = [a for a in known if a.name in ("log_probs", "targets")]
        if given[0].device is not given[1].device and given[1].tensor.dtype is not torch.int32:
            mismatch(session, plan, given)
        return first
    if plan.foreach:
        return _zipped(session, plan, known)
    if plan.exact:
        mismatch(session, plan, known)
    return _iterator(session, plan, known)


def _iterator(session: Rehearsal, plan: Plan, known: list[Argument]) -> Any:
    common = next((a.device for a in known if a.device is not CPU), CPU)
    scalars = 0
    for argument in known:
        if argument.device is common:
            continue
        written = (plan.inplace and argument.name == "self") or argument.name == "out"
        if argument.device is CPU and argument.tensor.dim() == 0 and not written:
            scalars += 1
        else:
            mismatch(session, plan, known)
    if scalars > (2 if plan.base == "where" else 1):
        infos, rule, forward = messages.describe(session, known)
        raise session.fail("Trying to pass too many CPU scalars to non-CPU kernel!", plan.base, rule, infos, forward)
    return common


def _zipped(session: Rehearsal, plan: Plan, known: list[Argument]) -> Any:
    """Lists of the same length: the tensors at one position share a device; 0-dim CPU tensors are scalars."""
    groups: dict[str, list[Argument]] = {}
    for argument in known:
        if "[" in argument.name:
            groups.setdefault(argument.name.split("[")[-1], []).append(argument)
    for group in groups.values():
        large = [a for a in group if a.tensor.dim() > 0 or a.device is not CPU]
        if any(a.device is not large[0].device for a in large[1:]):
            mismatch(session, plan, large)
    if plan.base.startswith("_fused"):
        steps = [a for a in known if a.name.startswith("state_steps") and a.device is CPU]
        if steps:
            mismatch(session, plan, [next(a for a in known if a.device is not CPU), *steps])
    return next(a.device for a in known if a.device is not CPU)


def _given(plan: Plan, args: Iterable[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(plan.names, args, strict=False)), **kwargs}


def _indexing(session: Rehearsal, plan: Plan, known: list[Argument], fills: bool) -> Any:
    own = known[0].device
    for argument in known[1:]:
        if argument.name.startswith("indices"):
            if argument.device is not own and argument.device is not CPU:
                infos, _, forward = messages.describe(session, known)
                raise session.fail(messages.index_text(own), plan.base, "TDL105", infos, forward)
            if not session.rehearsed(own):
                continue
            if argument.tensor.dtype in waits.MASKS and (not fills or known[-1].device is not CPU):
                session.sync("boolean-mask index")
            elif argument.device is CPU:
                session.sync("CPU index into a device tensor")
        elif argument.name == "values" and argument.device is not own and argument.tensor.dim() != 0:
            mismatch(session, plan, [known[0], argument])
    return own


def _special(session: Rehearsal, plan: Plan, known: list[Argument]) -> None:
    if plan.no_cuda:
        raise session.fail(
            f"Could not run '{plan.qualified}' with arguments from the '{session.kind.upper()}' backend.",
            plan.base,
            "",
            error=NotImplementedError,
        )
    if plan.base == "_pack_padded_sequence" and known[1].device is not CPU:
        infos, _, _ = messages.describe(session, known[1:2])
        raise session.fail(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {known[1].tensor.dim()}D "
            f"{known[1].device} Long tensor",
            plan.base,
            "TDL108",
            infos,
        )
    if plan.dtype_check is not None and known[0].tensor.dtype in _INTEGRAL:
        infos, _, _ = messages.describe(session, known)
        name = own_texts.TYPE_NAMES[known[0].tensor.dtype]
        raise session.fail(f"\"{plan.dtype_check}\" not implemented for '{name}'", plan.base, "", infos)


def mismatch(session: Rehearsal, plan: Plan, arguments: list[Argument]) -> None:
    """Raise the mismatch of ``arguments`` in CUDA's words."""
    infos, rule, forward = messages.describe(session, arguments)
    devices: list[Any] = []
    for argument in arguments:
        if argument.device not in devices:
            devices.append(argument.device)
    devices.sort(key=lambda device: device is CPU)
    own = own_texts.text_of(plan.base, {a.name: (a.tensor, a.device) for a in arguments})
    if own:
        text = own
    elif plan.exact and session.kind != "mps":  # which has no such wrapper
        ordered = sorted(arguments, key=lambda a: a.name != "out")  # the wrapper looks at them in this order
        odd = next(a for a in ordered if a.device is not ordered[0].device)
        name, wrapper = _INNER.get(plan.base, ("", plan.wrapper))
        wrapper = wrapper.replace("CUDA", session.kind.upper())
        text = messages.exact_text(name or odd.name.split("[")[0], odd.device, ordered[0].device, wrapper)
    else:
        text = messages.iterator_text(devices)
    raise session.fail(text, plan.base, rule, infos, forward)
