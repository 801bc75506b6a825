"""TDL102 discarded-transfer: a tensor is moved, and the moved one thrown away."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.api import LOSS_NAME, LOSSES
from devlint.semantics.tree import dotted
from devlint.units import Unit

_METHODS = frozenset(("to", "cuda", "cpu", "pin_memory"))


class DiscardedTransfer(MeetCheck):
    rules = (
        Rule(
            "TDL102",
            "discarded-transfer",
            "the result of moving a tensor is thrown away; the tensor stays where it was",
            fix="unsafe",
        ),
    )
    triggers = (("to", "cuda", "cpu", "pin_memory"),)
    patterns = (r"(?m)^\s*\(?[\w.\[\]'\"]+\.(?:to|cuda|cpu|pin_memory)\([^\n]*\)\s*(?:#.*)?$",)

    def finish(self) -> None:
        """Look at every move whose result nobody keeps."""
        self.interpret_callers()
        for move in self.file.placement.world.notes.moves:
            if move.discarded and move.value.kind == "tensor":
                made_here = move.value.source in ("factory", "numpy", "result", "moved")
                if made_here or (move.value.source == "element" and self._is_computed_with(move.unit, move.node)):
                    self._report(move.node, move.unit)

    def _is_computed_with(self, unit: Unit, call: cst.Call) -> bool:
        """Whether the element of a batch that is moved is an operand, or goes to a loss: others may move in place."""
        name = dotted(call.func.value) if isinstance(call.func, cst.Attribute) else ""
        scope = unit.enclosing(call, cst.For) or unit.module
        for node in unit.below(scope, cst.BinaryOperation, cst.Call):
            if isinstance(node, cst.BinaryOperation):
                if name and name in (dotted(node.left), dotted(node.right)):
                    return True
                continue
            takes = self.file.names.qualified(node.func, unit) in LOSSES or LOSS_NAME.search(dotted(node.func))
            if takes and any(dotted(arg.value) == name for arg in node.args):
                return True
        return False

    def visit_Expr(self, node: cst.Expr) -> None:
        call = node.value
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return
        name = dotted(call.func.value)
        if call.func.attr.value in _METHODS and name and self._is_checked(node, name):
            self._report(call, self.unit)

    def _is_checked(self, node: cst.CSTNode, name: str) -> bool:
        """Whether the statement stands under a test that the name is a tensor."""
        above = self.enclosing(node, cst.If)
        while above is not None:
            test = self.unit.module.code_for_node(above.test)
            proven = (
                rf"^(?:isinstance\({re.escape(name)},\s*(?:\w+\.)?Tensor\)|(?:\w+\.)?is_tensor\({re.escape(name)}\))$"
            )
            if re.search(proven, test) and node in self.unit.below(above.body):
                return True
            above = self.enclosing(above, cst.If)
        return False

    def _report(self, call: cst.Call, unit: Unit) -> None:
        if not isinstance(call.func, cst.Attribute):
            return
        name = dotted(call.func.value)
        code = unit.code(call)
        alone = name and isinstance(unit.parent(call), cst.Expr)
        fix = Fix(f"Write `{name} = …`", (replace(unit, call, f"{name} = {code}"),), "unsafe") if alone else None
        self.accuse(
            "TDL102",
            call,
            unit,
            f"`{code}` returns the moved tensor and leaves `{name or 'this one'}` where it is; only modules move in place: keep the "
            "result",
            fix,
            [],
        )
