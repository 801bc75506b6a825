"""The calls that make up a step with a `GradScaler`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from devlint.checks.base import File
from devlint.lazycst import cst
from devlint.semantics.autocast import Autocasts
from devlint.semantics.training import code_below, is_backward, looks_like_optimizer, method_call
from devlint.semantics.tree import dotted
from devlint.units import Unit

_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


@dataclass(frozen=True)
class ScalerEvent:
    """One call: `scale` is a backward pass of a scaled loss, `backward` of another, `bypass` a step around the scaler."""

    kind: Literal["scale", "backward", "unscale", "clip", "step", "bypass", "update"]
    node: cst.Call
    scaler: str = ""
    optimizer: str = ""


class ScalerEvents:
    """Finds the events in one file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._autocasts = Autocasts(file)

    def below(self, unit: Unit, scope: cst.CSTNode, scaled: frozenset[str]) -> list[ScalerEvent]:
        """The events below `scope`, in order; `scaled` are the names of scaled losses."""
        found = (self.at(unit, node, scaled) for node in code_below(unit, scope))
        return [event for event in found if event is not None]

    def scaled_names(self, unit: Unit, scope: cst.CSTNode) -> frozenset[str]:
        """The names that hold `scaler.scale(loss)`."""
        return frozenset(
            dotted(node.targets[0].target)
            for node in code_below(unit, scope)
            if isinstance(node, cst.Assign) and method_call(node.value, "scale")
        )

    def at(self, unit: Unit, node: cst.CSTNode, scaled: frozenset[str]) -> ScalerEvent | None:
        """The event that `node` is, if any."""
        if not isinstance(node, cst.Call):
            return None
        if not isinstance(node.func, cst.Attribute):
            named = dotted(node.func) in _CLIPS or self._file.names.qualified(node.func, unit).endswith(_CLIPS)
            return ScalerEvent("clip", node) if named or self._helper_clips(unit, node) else None
        method, receiver = node.func.attr.value, node.func.value
        name = dotted(receiver)
        if method in _CLIPS and "accelerator" not in name and "fabric" not in name:
            return ScalerEvent("clip", node)
        if method == "backward":
            if method_call(receiver, "scale"):
                assert isinstance(receiver, cst.Call) and isinstance(receiver.func, cst.Attribute)
                return ScalerEvent("scale", node, dotted(receiver.func.value))
            if name in scaled:
                return ScalerEvent("scale", node, self._any_scaler(unit))
            return ScalerEvent("backward", node) if is_backward(node) or "accelerator" in name else None
        if method == "step" and node.args and self._is_scaler(unit, receiver):
            return ScalerEvent("step", node, name, unit.module.code_for_node(node.args[0].value))
        if method == "unscale_" and node.args:
            return ScalerEvent("unscale", node, name, unit.module.code_for_node(node.args[0].value))
        if method == "update" and self._is_scaler(unit, receiver):
            return ScalerEvent("update", node, name)
        if method == "step" and not node.args and looks_like_optimizer(name):
            return ScalerEvent("bypass", node, "", name)
        return ScalerEvent("clip", node) if name == "self" and self._helper_clips(unit, node) else None

    def _helper_clips(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call runs a function of this file, or a method of the same class, that clips and does not unscale."""
        name = dotted(call.func).rpartition(".")[2]
        units = (
            [unit]
            if isinstance(call.func, cst.Attribute)
            else [other for other in self._file.units if other.name == name]
        )
        for other in units:
            if "clip_grad_" not in other.text or f"def {name}(" not in other.text:
                continue
            for function in other.below(other.module, cst.FunctionDef):
                if function.name.value == name:
                    code = other.module.code_for_node(function)
                    return re.search(r"\bclip_grad_\w+\(", code) is not None and "scale" not in code
        return False

    def _is_scaler(self, unit: Unit, node: cst.BaseExpression) -> bool:
        """Whether an expression is called a scaler, or is a `GradScaler` of this file."""
        name = dotted(node)
        return "scaler" in name.lower() or (bool(name) and self._autocasts.scaler(node, unit) is not None)

    def _any_scaler(self, unit: Unit) -> str:
        calls = (call for call in unit.below(unit.module, cst.Call) if method_call(call, "scale"))
        return next((dotted(call.func.value) for call in calls if isinstance(call.func, cst.Attribute)), "scaler")
