"""TDL518 tensor-from-tensor: `torch.tensor(x)` of what is a tensor already."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument, has_unpacking, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.values import Value
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_CALL = re.compile(r"\w\s*\(\s*(?:data\s*=\s*)?[A-Za-z_(]")
# What tells tensors from numbers and lists at run time is right in either case.
_ASKS = frozenset(("isinstance", "is_tensor", "hasattr", "Union", "issubclass"))


class TensorFromTensor(Check):
    rules = (Rule("TDL518", "tensor-from-tensor", "`torch.tensor` of a tensor", fix="unsafe"),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._calls: list[cst.Call] = []

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit calls `torch.tensor` with something other than a literal."""
        return not unit.words.isdisjoint(names.words_for(("torch.tensor",))) and _CALL.search(unit.text) is not None

    def visit_Call(self, node: cst.Call) -> None:
        if not node.args or self.name(node.func) != "torch.tensor" or node.args[0].star:
            return
        if isinstance(node.args[0].value, (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.BinaryOperation)):
            self._calls.append(node)

    def finish_unit(self) -> None:
        """Ask the interpreter what the calls are given."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        self.file.placement.world.interpret(self.unit)
        for call in calls:
            values = self.file.placement.world.notes.copies.get(call, [])
            if values and all(_is_tensor(value) for value in values) and not self._asks(call):
                self._accuse(call)

    def _asks(self, call: cst.Call) -> bool:
        function = self.enclosing(call, cst.FunctionDef)
        nodes = self.unit.below(function) if function is not None else self.unit.nodes
        return is_compatibility_code(self.unit, call) or any(
            isinstance(node, cst.Name) and node.value in _ASKS for node in nodes
        )

    def _accuse(self, call: cst.Call) -> None:
        self.report(
            call,
            "TDL518",
            f"`{self.code(call.args[0].value)}` is a tensor already: `torch.tensor` copies it out of its graph and warns; "
            "use `.detach().clone()`, or the tensor itself",
            fix=self._fix(call),
        )

    def _fix(self, call: cst.Call) -> Fix | None:
        data = argument(call, "data", 0)
        known = {"data", "dtype", "device", "requires_grad"}
        others = [arg for arg in call.args if arg is not data]
        if (
            data is None
            or has_unpacking(call)
            or any(a.keyword is None or a.keyword.value not in known for a in others)
        ):
            return None
        start, end = self.unit.offsets(call)
        if "#" in self.file.source.text[start:end]:
            return None
        text = self.code(data.value)
        if isinstance(data.value, cst.BinaryOperation):
            text = f"({text})"
        text += ".detach().clone()"
        moved = [self.code(arg.value) for key in ("device", "dtype") if (arg := argument(call, key)) is not None]
        if moved:
            text += f".to({', '.join(moved)})"
        leaf = argument(call, "requires_grad")
        if leaf is not None and self.code(leaf.value) != "False":
            text += ".requires_grad_(" + ("" if self.code(leaf.value) == "True" else self.code(leaf.value)) + ")"
        root = dotted(call.func).partition(".")[0]
        gone = () if self.file.names.aliases.get(root) == {"torch"} else (root,)
        return Fix("Use `.detach().clone()`", (replace(self.unit, call, text),), "unsafe", (), gone)


def _is_tensor(value: Value) -> bool:
    """Whether a value is a tensor for sure: a loader may hand out lists, and annotations of parameters are not kept to."""
    if value.kind != "tensor" or value.source == "element":
        return False
    # What was computed from a parameter by a method that only tensors have is one.
    return value.source != "parameter" or (value.place is not None and value.name != value.place.symbol)
