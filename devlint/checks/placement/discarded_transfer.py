"""TDL102 discarded-transfer: a tensor is moved, and the moved one thrown away."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.tree import dotted

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
    patterns = (r"(?m)^\s*[\w.\[\]'\"]+\.(?:to|cuda|cpu|pin_memory)\([^\n]*\)\s*(?:#.*)?$",)

    def finish(self) -> None:
        """Look at every move whose result nobody keeps."""
        self.interpret_callers()
        for move in self.file.placement.world.notes.moves:
            if (
                move.discarded
                and move.value.kind == "tensor"
                and move.value.source in ("factory", "numpy", "result", "moved")
            ):
                self._report(move.node, move.unit)

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

    def _report(self, call: cst.Call, unit: object) -> None:
        if not isinstance(call.func, cst.Attribute):
            return
        found = next(u for u in self.file.units if u is unit)
        name = dotted(call.func.value)
        code = found.code(call)
        fix = Fix(f"Write `{name} = …`", (replace(found, call, f"{name} = {code}"),), "unsafe") if name else None
        self.accuse(
            "TDL102",
            call,
            found,
            f"`{code}` returns the moved tensor and leaves `{name or 'this one'}` where it is; only modules move in place: keep the "
            "result",
            fix,
            [],
        )
