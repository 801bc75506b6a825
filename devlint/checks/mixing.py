"""Meetings on two devices that are none: what has no dimension, no parameters, or was left where it was by default."""

from __future__ import annotations

import re

from devlint.checks.base import File
from devlint.checks.meeting import parameters_of
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.flow.api import CONTAINERS, PARAMETRIC
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Value
from devlint.semantics.tree import dotted

# A layer that `__init__` hands to a helper with one of another module's may take the parameters of that one.
_REWORKED = re.compile(r"^\s+\w+\(self\.\w+,\s*(?!self\b)\w+\.\w+\)", re.M)


def is_item(file: File, operand: Operand) -> bool:
    """Whether it was made of an item of a range that a loop goes through: it has no dimension, and mixes with everything."""
    made = operand.value.creator or (operand.value.steps[0] if operand.value.steps else None)
    loop = made.unit.parents.get(made.node) if made is not None else None
    ranges = ("torch.arange", "torch.linspace", "torch.logspace", "torch.randperm", "torch.range")
    return (
        made is not None
        and isinstance(loop, cst.For)
        and isinstance(made.node, cst.Call)
        and loop.iter is made.node
        and file.names.qualified(made.node.func, made.unit) in ranges
    )


def by_default(file: File, meet: Meet, other: Operand) -> bool:
    """Whether a helper put the other operand on its parameter `device=None`, which the file leaves out somewhere: None
    is the CPU."""
    step = other.value.steps[-1] if other.value.steps else None
    helper = step.unit.enclosing(step.node, cst.FunctionDef) if step is not None else None
    place = other.value.place
    if helper is None or place is None or meet.unit.enclosing(meet.node, cst.FunctionDef) is helper:
        return False
    names = parameters_of(helper)
    param = next((p for p in helper.params.params if p.name.value == place.symbol), None)
    if param is None or not isinstance(param.default, cst.Name) or param.default.value != "None":
        return False
    index, name = names.index(place.symbol), helper.name.value
    return any(
        argument(call, place.symbol) is None and sum(arg.keyword is None for arg in call.args) <= index
        for unit in file.units
        if name in unit.words
        for call in unit.below(unit.module, cst.Call)
        if dotted(call.func).rpartition(".")[2] == name
    )


def holds_nothing(file: File, module: Value) -> bool:
    """Whether a module of torch has no parameters, such as a CTCLoss: it is nowhere, and takes its inputs anywhere."""
    made = module.steps[0] if module.steps else None
    if made is None or not isinstance(made.node, cst.Call):
        return False
    name = file.names.qualified(made.node.func, made.unit)
    return name.startswith("torch.nn.") and name not in PARAMETRIC and name not in CONTAINERS


def takes_parameters(module: Value) -> bool:
    """Whether the class of a module may give a layer of its own the parameters of another module's."""
    return module.defined is not None and _REWORKED.search(module.defined[0].text) is not None
