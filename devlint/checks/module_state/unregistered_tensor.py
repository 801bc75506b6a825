"""TDL601 unregistered-tensor-attribute: a tensor that stays behind when its module moves."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, evidence_of, pairs, parameters_of
from devlint.edits import argument, replace, statement_of
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORY_CALL
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Step
from devlint.semantics.tree import dotted


class UnregisteredTensor(MeetCheck):
    rules = (
        Rule(
            "TDL601",
            "unregistered-tensor-attribute",
            "a plain tensor attribute of a module does not follow `.to()`, and meets what does",
            fix="unsafe",
        ),
    )
    triggers = (("class",), ("self",), ("__init__",))
    patterns = (FACTORY_CALL,)

    def judge(self, meet: Meet) -> None:
        for left, other in pairs(meet):
            place = other.value.place
            if left.value.source != "attribute" or place is None or not left.value.steps:
                continue
            if meet.kind == "index" and meet.operands[0] is not left:
                continue
            if not self._of_a_tensor(left.value.steps[-1]):
                self._report(meet, left, other, left.value.steps[-1])
            return

    def _of_a_tensor(self, step: Step) -> bool:
        """Whether it is `torch.tensor(x)` of an argument that may be a tensor itself, and then stays where that one is."""
        owner, init = (step.unit.enclosing(step.node, kind) for kind in (cst.ClassDef, cst.FunctionDef))
        statement = statement_of(step.unit, step.node)
        if not isinstance(owner, cst.ClassDef) or not isinstance(init, cst.FunctionDef) or statement is None:
            return False
        copied = [
            call.args[0].value.value
            for call in step.unit.below(statement, cst.Call)
            if call.args and isinstance(call.args[0].value, cst.Name)
            if self.file.names.qualified(call.func, step.unit) in ("torch.tensor", "torch.as_tensor")
        ]
        names = parameters_of(init)
        return any(self._handed(owner.name.value, names.index(name) - 1, name) for name in copied if name in names)

    def _handed(self, owner: str, index: int, name: str) -> bool:
        """Whether the file builds the class with a name in that place which it gives no list, tuple or number."""
        for unit in self.file.units:
            for call in unit.below(unit.module, cst.Call) if owner in unit.words else ():
                if dotted(call.func) != owner:
                    continue
                given = argument(call, name) or (call.args[index] if index < len(call.args) else None)
                if given is not None and isinstance(given.value, cst.Name):
                    told = rf"^\s*{given.value.value}\s*=\s*[\[(\d]"
                    return re.search(told, self.file.source.text, re.M) is None
        return False

    def _report(self, meet: Meet, left: Operand, other: Operand, step: Step) -> None:
        name = step.text
        line = meet.unit.span(meet.node).line
        message = (
            f"`self.{name}` is a plain tensor attribute: `.to()` leaves it on the CPU, and at line {line} it meets what is "
            f"{describe(other.value.place)}; register it: "
            f'`self.register_buffer("{name}", …, persistent=False)`'
        )
        evidence = [evidence_of(meet.unit, meet.node, f"here it meets what is {describe(other.value.place)}")]
        self.accuse("TDL601", step.node, step.unit, message, self._fix(step, name), evidence)

    def _fix(self, step: Step, name: str) -> Fix | None:
        statement = statement_of(step.unit, step.node)
        if (
            not isinstance(statement, cst.Assign)
            or len(statement.targets) != 1
            or not self._after_super(step, statement)
        ):
            return None
        value = step.unit.code(statement.value)
        text = f'self.register_buffer("{name}", {value}, persistent=False)'
        return Fix(f"Register `{name}` as a buffer", (replace(step.unit, statement, text),), "unsafe")

    def _after_super(self, step: Step, statement: cst.Assign) -> bool:
        """Whether `super().__init__()` has run before the statement, as `register_buffer` needs."""
        function = step.unit.enclosing(step.node, cst.FunctionDef)
        if function is None:
            return False
        for node in step.unit.below(function):
            if node is statement:
                return False
            if isinstance(node, cst.Attribute) and node.attr.value == "__init__":
                return True
        return False
