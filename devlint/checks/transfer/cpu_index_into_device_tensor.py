"""TDL219 cpu-index-into-device-tensor: an index on the CPU is copied to the device at every use."""

from __future__ import annotations

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, step_evidence
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORY_CALL
from devlint.semantics.flow import api
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Step
from devlint.semantics.imports import bound_at
from devlint.semantics.tree import dotted
from devlint.units import Unit

# What came from the host, by a loader or from an array, must be copied anyhow.
_MADE_HERE = ("factory", "moved", "assumed", "held")
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_READS = frozenset(("tolist", "numpy", "item"))
_COPIES = ("torch.tensor", "torch.as_tensor")


class CpuIndexIntoDeviceTensor(MeetCheck):
    rules = (
        Rule(
            "TDL219",
            "cpu-index-into-device-tensor",
            "a tensor on a device is indexed, in a loop or in `forward`, by one on the CPU",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("for", "while", "self"),)
    patterns = (r"\[", rf"{FACTORY_CALL}|\.cpu\(")

    def judge(self, meet: Meet) -> None:
        if meet.kind != "index" or len(meet.operands) != 2:
            return
        base, index = meet.operands
        on, place = base.value.place, index.value.place
        if on is None or not (on.kind in ("accelerator", "home") or (on.kind == "input" and meet.in_forward)):
            return
        if place is None or place.kind != "cpu" or index.value.maybe_scalar or index.value.source not in _MADE_HERE:
            return
        if not (meet.in_forward or _in_loop(meet.unit, meet.node)) or _serves_the_host(meet.unit, index.node):
            return
        held, unit = meet.unit.code(base.node), meet.unit
        name = f"`{held}`" if "\n" not in held and len(held) <= 40 else "this tensor"
        shown = f"`{dotted(index.node)}`" if dotted(index.node) else "the index"
        creator = index.value.creator
        origin = creator or (index.value.steps[-1] if index.value.steps else None)
        copied = creator is None or self._name(creator) in _COPIES
        advice = (
            "keep it on the device" if copied or not dotted(base.node) else f"create it there: `device={held}.device`"
        )
        self.accuse(
            "TDL219",
            index.node,
            unit,
            f"{name} is {describe(on)}, and {shown} is on the CPU: every time it is copied to the device, and the host waits "
            f"for that; {advice}",
            None if copied or creator is None else self._fix(meet, base, index, creator),
            [step_evidence(origin, "the index is made here, on the CPU")] if origin is not None else [],
        )

    def _name(self, creator: Step) -> str:
        return self.file.names.qualified(creator.node.func, creator.unit) if isinstance(creator.node, cst.Call) else ""

    def _fix(self, meet: Meet, base: Operand, index: Operand, creator: Step) -> Fix | None:
        """Create the index where the tensor is, if nothing else is done with it."""
        unit, call, name = meet.unit, creator.node, dotted(base.node)
        if creator.unit is not unit or not isinstance(call, cst.Call) or not name or has_unpacking(call):
            return None
        if argument(call, "device") is not None or argument(call, "generator") is not None:
            return None
        function = unit.enclosing(meet.node, cst.FunctionDef)
        if unit.enclosing(call, cst.FunctionDef) is not function:
            return None
        scope = function or unit.module
        made = index.node if _is_shaped(index.node, call) else self._only_value(unit, scope, index.node)
        if made is None or not _is_shaped(made, call) or not _bound_before(unit, scope, name, call):
            return None
        edit = add_argument(unit, call, f"device={name}.device")
        return Fix(f"Create it with `device={name}.device`", (edit,), "unsafe") if edit else None

    def _only_value(self, unit: Unit, scope: cst.CSTNode, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a name is assigned, where it is assigned once and used once."""
        name = dotted(node)
        uses = [other for other in unit.below(scope) if isinstance(other, cst.Name) and other.value == name]
        target = unit.parents.get(uses[0]) if len(uses) == 2 and uses[1] is node else None
        above = unit.parents.get(target) if isinstance(target, cst.AssignTarget) else None
        return above.value if isinstance(above, cst.Assign) and len(above.targets) == 1 else None


def _in_loop(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a loop of the same function runs `node` again and again."""
    child, above = node, unit.parents.get(node)
    while above is not None and not isinstance(above, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
        if isinstance(above, (cst.For, cst.While)) and child is above.body:
            return True
        if isinstance(above, _COMPREHENSIONS) and not isinstance(child, cst.CompFor):
            return True
        child, above = above, unit.parents.get(above)
    return False


def _serves_the_host(unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether the host reads or writes single elements of what an index is made of, and so wants it where it is."""
    at: cst.CSTNode = node.expression if isinstance(node, cst.UnaryOperation) else node
    name, scope = dotted(at), unit.enclosing(node, cst.FunctionDef) or unit.module
    return any(
        isinstance(other, (cst.Subscript, cst.Attribute))
        and isinstance(other.value, cst.Name)
        and other.value.value == name
        and (isinstance(other, cst.Subscript) or other.attr.value in _READS)
        for other in unit.below(scope)
    )


def _is_shaped(node: cst.BaseExpression, call: cst.Call) -> bool:
    """Whether `node` is the result of `call`, perhaps sliced, cast or reshaped: nothing else has a device in it."""
    while node is not call:
        if isinstance(node, cst.Subscript) and all(_is_plain(part.slice) for part in node.slice):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in api.KEEP_METHODS:
                return False
            node = node.func.value
        elif isinstance(node, cst.Comparison) and all(
            isinstance(part.comparator, (cst.Integer, cst.Float)) for part in node.comparisons
        ):
            node = node.left
        else:
            return False
    return True


def _is_plain(part: cst.BaseSlice) -> bool:
    """Whether a part of an index is a slice, a number, `None` or `...`."""
    value = part.value if isinstance(part, cst.Index) else None
    return value is None or isinstance(value, (cst.Integer, cst.Ellipsis)) or dotted(value) == "None"


def _bound_before(unit: Unit, scope: cst.CSTNode, name: str, node: cst.CSTNode) -> bool:
    """Whether the root of the dotted `name` is bound in `scope` before `node` runs."""
    root, last = name.partition(".")[0], unit.index_of(node)
    return any(root in bound_at(inner) and unit.index_of(inner) < last for inner in unit.below(scope))
