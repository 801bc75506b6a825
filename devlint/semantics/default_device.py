"""Where a file makes an accelerator the default device of new tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, string_value
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

_SETTERS = ("torch.set_default_device", "torch.set_default_tensor_type")


def default_device(file: File) -> tuple[cst.BaseExpression, cst.Call, Unit] | None:
    """The accelerator that the file makes the default for new tensors, the call that does so, and its unit."""
    if file.words.isdisjoint(("set_default_device", "set_default_tensor_type")):
        return None
    for unit in file.units:
        if unit.words.isdisjoint(("set_default_device", "set_default_tensor_type")):
            continue
        for node in unit.below(unit.module, cst.Call):
            if file.names.qualified(node.func, unit) in _SETTERS and node.args:
                place = node.args[0].value
                if _may_be_an_accelerator(file, place, unit) and not _for_a_block(node, unit):
                    return place, node, unit
    return None


def _for_a_block(node: cst.Call, unit: Unit) -> bool:
    """Whether a context manager sets the default, and puts it back."""
    function = unit.enclosing(node, cst.FunctionDef)
    if function is None:
        return False
    return function.name.value in ("__enter__", "__exit__") or bool(unit.below(function, cst.Yield))


def _may_be_an_accelerator(file: File, node: cst.BaseExpression, unit: Unit) -> bool:
    text = string_value(node)
    if text is not None:
        return text.partition(":")[0] in ACCELERATORS or text.startswith("torch.cuda.")
    name = file.names.qualified(node, unit)
    if isinstance(node, cst.Call):
        inner = node.args[0].value if node.args else None
        return (
            file.names.qualified(node.func, unit) == "torch.device"
            and inner is not None
            and _may_be_an_accelerator(file, inner, unit)
        )
    if isinstance(node, cst.IfExp):
        return _may_be_an_accelerator(file, node.body, unit) or _may_be_an_accelerator(file, node.orelse, unit)
    if name:
        return name.startswith("torch.cuda.") and name.endswith("Tensor")
    return "device" in dotted(node).lower()
