"""The functions and classes of one file: which are modules, and what their attributes hold."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import MOVES_OR_DEVICE
from devlint.semantics.flow.api import PARAMETRIC
from devlint.semantics.flow.values import CPU, CPU0, EMPTY, HOME, UNKNOWN, Step, Value
from devlint.semantics.tree import dotted
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.interpreter import Run

_BUILDERS = ("__init__", "train", "eval")
"""The methods that run before a module is used, whatever it is used for."""
_MODULE_BASES = re.compile(r"(?:^|\.)(?:\w*Module|\w*PreTrainedModel|\w*Model|Function)$")


class Classes:
    """What is defined at the top level of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.names = file.names
        self._attributes: dict[cst.ClassDef, dict[str, Value]] = {}
        self._initialised: set[cst.ClassDef] = set()
        self._module_classes: dict[cst.ClassDef, bool] = {}
        self._begins_on_cpu: dict[cst.ClassDef, bool] = {}
        self._builders: set[cst.FunctionDef] = set()
        """The methods that constructors call."""
        self._active: list[cst.FunctionDef] = []

    def run_function(self, unit: Unit, node: cst.FunctionDef, owner: cst.ClassDef | None) -> None:
        """Run a function once, for what it assigns and what meets in it."""
        raise AssertionError("defined by the world")

    def is_module(self, unit: Unit, node: cst.ClassDef) -> bool:
        """Whether a class is an `nn.Module`, by its bases in this file and the names of those from elsewhere."""
        known = self._module_classes.get(node)
        if known is None:
            self._module_classes[node] = False
            known = self._module_classes[node] = any(self._module_base(unit, arg.value) for arg in node.bases)
        return known

    def _module_base(self, unit: Unit, base: cst.BaseExpression) -> bool:
        name = self.names.qualified(base, unit)
        if name:
            return name.startswith("torch.nn.") or bool(_MODULE_BASES.search(name))
        found = self.class_named(dotted(base))
        return found is not None and self.is_module(*found)

    def class_named(self, name: str) -> tuple[Unit, cst.ClassDef] | None:
        """The top-level class of that name."""
        for unit in self.file.units:
            if unit.name == name and isinstance(unit.statements[0], ast.ClassDef):
                try:
                    node = unit.module.body[-1]
                except UnitTooDeep:
                    return None
                if isinstance(node, cst.ClassDef):
                    return unit, node
        return None

    def begins_on_cpu(self, unit: Unit, node: cst.ClassDef) -> bool:
        """Whether a new instance of a module's class surely has parameters, all of them on the CPU."""
        known = self._begins_on_cpu.get(node)
        if known is None:
            self._begins_on_cpu[node] = False
            known = self._begins_on_cpu[node] = self._holds_parameters(unit, node) and not self._places_itself(
                unit, node
            )
        return known

    def _holds_parameters(self, unit: Unit, node: cst.ClassDef) -> bool:
        for call in unit.below(node, cst.Call):
            name = self.names.qualified(call.func, unit)
            if name in PARAMETRIC or name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
                return True
            held = self.class_named(dotted(call.func)) if not name else None
            if held is not None and held[1] is not node and self.begins_on_cpu(*held):
                return True
        return any(self._holds_parameters(*base) for base in self._bases(node))

    def _places_itself(self, unit: Unit, node: cst.ClassDef, seen: frozenset[cst.ClassDef] = frozenset()) -> bool:
        """Whether the constructor may choose a device, or a part of the module does."""
        if node in seen:
            return False
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
                if MOVES_OR_DEVICE.search(unit.module.code_for_node(statement)):
                    return True
        if re.search(r"\bself\.(?:to|cuda)\(", unit.text):
            return True
        parts = (self.class_named(dotted(call.func)) for call in unit.below(node, cst.Call))
        related = [*self._bases(node), *(part for part in parts if part is not None and self.is_module(*part))]
        return any(self._places_itself(*other, seen | {node}) for other in related)

    def _bases(self, node: cst.ClassDef) -> list[tuple[Unit, cst.ClassDef]]:
        """The bases that this file defines."""
        found = (self.class_named(dotted(arg.value)) for arg in node.bases)
        return [base for base in found if base is not None and base[1] is not node]

    def function(self, name: str) -> tuple[Unit, cst.FunctionDef] | None:
        """The top-level function of that name."""
        for unit in self.file.units:
            if unit.name == name and not isinstance(unit.statements[0], ast.ClassDef):
                try:
                    node = unit.module.body[-1]
                except UnitTooDeep:
                    return None
                if isinstance(node, cst.FunctionDef):
                    return unit, node
        return None

    def _initialise(self, unit: Unit, node: cst.ClassDef) -> None:
        """Run `__init__`, and the bases' before it, so that the attributes are known."""
        if node in self._initialised:
            return
        self._initialised.add(node)
        attributes = self._attributes.setdefault(node, {})
        for base in self._bases(node):
            self._initialise(*base)
            attributes.update(self._attributes.get(base[1], {}))
        methods = [statement for statement in node.body.body if isinstance(statement, cst.FunctionDef)]
        for method in methods:
            if method.name.value == "__init__":
                self.run_function(unit, method, node)
        for method in methods:
            if method.name.value == "train" and self.is_module(unit, node):
                self.run_function(unit, method, node)

    def note_attribute(self, run: Run, target: cst.CSTNode, name: str, value: Value) -> None:
        """An assignment to `self.<name>`: what it is in the class's other methods."""
        owner, function = run.class_node, run.function
        if owner is None or function is None:
            return
        attributes = self._attributes.setdefault(owner, {})
        if run.in_module and value.place == HOME and _is_computed(run.unit, target) and name not in attributes:
            if function.name.value in _BUILDERS:
                # `.to()` moves what this was computed from, and leaves the result behind.
                step = Step(target, run.unit, name)
                attributes[name] = replace(value, place=CPU, source="attribute", steps=(step,), ident=object())
            return
        if run.building:
            self._builders.add(function)
        elif function.name.value != "__init__":
            settled = value.kind in ("device", "loader") or (value.kind == "module" and is_moved(value))
            if name not in attributes and settled:
                attributes[name] = value
            return
        if run.in_module:
            if value.kind in ("module", "loss"):
                # A module that holds nothing, such as a Dropout or a CTCLoss, is nowhere.
                # The weight of a loss is a buffer.
                holds = value.place == CPU or (value.kind == "module" and self.class_named(value.name) is not None)
                value = replace(value, place=HOME if holds else value.place)
            elif value.kind == "tensor" and value.source == "registered" and value.place in (CPU, None):
                value = replace(value, place=HOME)
            elif value.kind == "tensor" and value.place in (CPU, CPU0) and value.source in ("factory", "numpy"):
                value = replace(value, source="attribute", steps=(*value.steps, Step(target, run.unit, name)))
            elif value.kind == "tensor":
                value = Value("tensor", None)
            elif value.kind == "container":
                items = value.items or {}
                if items and all(item.place == CPU and item.source == "factory" for item in items.values()):
                    steps = (Step(target, run.unit, name),)
                    kept = {k: replace(v, source="attribute", steps=(*v.steps, *steps)) for k, v in items.items()}
                    value = replace(value, source="attribute", items=kept)
                else:
                    value = UNKNOWN
        elif value.kind == "tensor":
            made_here = (
                value.place in (CPU, EMPTY)
                and value.source in ("factory", "numpy")
                and not self._moved_by_name(run.unit, name)
            )
            held = replace(value, source="held", steps=(*value.steps, Step(target, run.unit, name)))
            value = held if made_here else UNKNOWN
        elif value.kind == "loss" and value.place == CPU and not self._moved_by_name(run.unit, name):
            pass
        elif value.kind in ("module", "loss") and not is_moved(value):
            # Who built it may move it later, or the class may be a module through a base that is not seen here.
            value = replace(value, source="held") if self._stays_here(run.unit, owner, name, value) else UNKNOWN
        attributes[name] = value if name not in attributes or attributes[name].kind == value.kind else UNKNOWN

    def _moved_by_name(self, unit: Unit, name: str) -> bool:
        """Whether the file may move an attribute of that name by hand, from wherever: by itself, or all at once."""
        text = self.file.source.text
        return (
            re.search(rf"\.{name}\.(?:data\.)?(?:to|cuda)\(|\.{name}\s*=[^=\n]*\.(?:to|cuda)\(", text) is not None
            or re.search(r"\bsetattr\(|__dict__|\bvars\(", unit.text) is not None
        )

    def _stays_here(self, unit: Unit, owner: cst.ClassDef, name: str, value: Value) -> bool:
        """Whether a plain object's module is where its constructor made it: nobody in the file moves it, or is given it."""
        if value.kind != "module" or value.place != CPU or value.source != "factory" or owner.bases:
            return False
        handed = any(
            dotted(node.value) == f"self.{name}" for node in unit.below(owner, *(cst.Arg, cst.Element, cst.DictElement))
        )
        return not handed and not self._moved_by_name(unit, name)

    def attribute(self, unit: Unit, node: cst.ClassDef, name: str) -> Value:
        """What `self.<name>` is at the start of a method."""
        self._initialise(unit, node)
        value = self._attributes.get(node, {}).get(name, UNKNOWN)
        if value.source in ("attribute", "held") and self._reassigned(unit, node, name):
            return UNKNOWN
        if value.kind == "device" and value.place == CPU and self._reassigned(unit, node, name):
            return Value("device", None)
        return value

    def _reassigned(self, unit: Unit, node: cst.ClassDef, name: str) -> bool:
        """Whether another method than `__init__` and the running one may give the attribute another place."""
        running = self._active[-1] if self._active else None
        for inner in unit.below(node, cst.AssignTarget):
            if dotted(inner.target) == f"self.{name}":
                function = unit.enclosing(inner, cst.FunctionDef)
                if function is None or function is running or function in self._builders:
                    continue
                if function.name.value not in _BUILDERS:
                    return True
        own = {method.name.value for method in unit.below(node, cst.FunctionDef)}
        return not own.isdisjoint(("_apply", "to", "cuda", "__getattr__"))


def is_moved(value: Value) -> bool:
    """Whether the value was moved to what may be an accelerator."""
    return value.place is not None and value.place.kind == "accelerator"


def _is_computed(unit: Unit, target: cst.CSTNode) -> bool:
    """Whether what is assigned to `target` is the result of an index or an operator."""
    above = unit.parent(target)
    statement = unit.parent(above) if isinstance(above, cst.AssignTarget) else None
    return isinstance(statement, cst.Assign) and isinstance(statement.value, (cst.Subscript, cst.BinaryOperation))
