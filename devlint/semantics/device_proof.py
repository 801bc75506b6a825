"""Which expressions are surely a `torch.device`, rather than a string that names one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File


class DeviceProof:
    """Proofs that an expression of one file is a `torch.device`."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._origins = Origins(file)

    def is_device(self, node: cst.BaseExpression, unit: Unit) -> bool:
        """Whether every value that `node` may have is a `torch.device`."""
        if self._annotated(node, unit):
            return True
        origins = self._origins.of(node, unit)
        return bool(origins) and all(
            origin is not None and self._is_device(origin.node, origin.unit) for origin in origins
        )

    def _is_device(self, node: cst.BaseExpression, unit: Unit) -> bool:
        if self._annotated(node, unit):
            return True
        if isinstance(node, cst.Call):
            return self._file.names.qualified(node.func, unit) == "torch.device"
        if isinstance(node, cst.BooleanOperation):
            return self._is_device(node.right, unit) and (
                self._is_device(node.left, unit) or self._is_never_given(node.left, unit)
            )
        return isinstance(node, cst.Attribute) and node.attr.value == "device" and self.is_tensor_device(node, unit)

    def _is_never_given(self, node: cst.BaseExpression, unit: Unit) -> bool:
        """Whether `node` is a parameter that defaults to None, and the file calls its function, never with arguments."""
        function = unit.enclosing(node, cst.FunctionDef)
        if function is None or not isinstance(node, cst.Name):
            return False
        params = (*function.params.params, *function.params.kwonly_params)
        default = next((param.default for param in params if param.name.value == node.value), None)
        if not isinstance(default, cst.Name) or default.value != "None":
            return False
        owner = unit.enclosing(function, cst.ClassDef)
        called = owner.name.value if owner is not None else function.name.value
        calls = [
            call
            for other in self._file.units
            if called in other.words
            for call in other.below(other.module, cst.Call)
            if dotted(call.func).rpartition(".")[2] == called
        ]
        return bool(calls) and not any(call.args for call in calls)

    def is_tensor_device(self, node: cst.Attribute, unit: Unit) -> bool:
        """Whether `<value>.device` is that of a tensor."""
        self._file.placement.world.interpret(unit)
        return node in self._file.placement.world.notes.devices or self._first_parameter(node.value)

    def _first_parameter(self, node: cst.BaseExpression) -> bool:
        """Whether `node` is `next(module.parameters())`, or a registered weight."""
        if isinstance(node, cst.Call) and dotted(node.func) == "next" and node.args:
            inner = node.args[0].value
            return isinstance(inner, cst.Call) and dotted(inner.func).rpartition(".")[2] in ("parameters", "buffers")
        return isinstance(node, cst.Attribute) and node.attr.value in ("weight", "bias")

    def _annotated(self, node: cst.BaseExpression, unit: Unit) -> bool:
        """Whether a parameter or a field is annotated as a `torch.device`."""
        name = dotted(node)
        if not name:
            return False
        scope: cst.CSTNode | None = unit.enclosing(node, cst.FunctionDef)
        if name.startswith("self."):
            scope, name = unit.enclosing(node, cst.ClassDef), name[5:]
            return scope is not None and any(
                dotted(other.target) in (name, "self." + name) and self._names_device(other.annotation, unit)
                for other in unit.below(scope, cst.AnnAssign)
            )
        if scope is None or "." in name:
            return False
        if any(dotted(other.target) == name for other in unit.below(scope, cst.AssignTarget)):
            return False
        return any(
            other.name.value == name
            and other.annotation is not None
            and string_value(other.default) is None
            and self._names_device(other.annotation, unit)
            for other in unit.below(scope, cst.Param)
        )

    def _names_device(self, annotation: cst.Annotation, unit: Unit) -> bool:
        return self._file.names.qualified(annotation.annotation, unit) == "torch.device"
