"""TDL410 backward-in-autocast and TDL420 scheduler-before-optimizer: the order of a step, as the documentation wants it."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.training import is_backward, method_call, step_call
from devlint.semantics.tree import dotted

_AUTOCAST = frozenset(("torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"))
_SCHEDULER = re.compile(r"sched|lr_", re.I)


class StepOrder(Check):
    rules = (
        Rule("TDL410", "backward-in-autocast", "`backward()` inside an autocast block", default=False),
        Rule(
            "TDL420",
            "scheduler-before-optimizer",
            "a learning-rate scheduler steps before its optimizer, or before the scaler is updated",
            default=False,
        ),
    )
    triggers = (("backward", "step"),)
    patterns = (r"autocast|sched|lr_",)

    def visit_Call(self, node: cst.Call) -> None:
        if is_backward(node):
            block = self._autocast_around(node)
            if block is not None:
                self.report(
                    node,
                    "TDL410",
                    "the backward pass runs under autocast here; its operations take the dtypes of the forward pass by themselves, and "
                    "PyTorch advises against it: end the block before `backward()`",
                    evidence=[(block, "autocast begins here")],
                )

    def _autocast_around(self, node: cst.CSTNode) -> cst.With | None:
        above = self.enclosing(node, cst.With, cst.FunctionDef)
        while isinstance(above, cst.With):
            for item in above.items:
                if isinstance(item.item, cst.Call) and self.name(item.item.func) in _AUTOCAST:
                    return above
            above = self.enclosing(above, cst.With, cst.FunctionDef)
        return None

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        calls = [
            small.value
            for statement in node.body
            if isinstance(statement, cst.SimpleStatementLine)
            for small in statement.body
            if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call)
        ]
        steps = [index for index, call in enumerate(calls) if step_call(self.unit, call) is not None]
        for index, call in enumerate(calls):
            if not method_call(call, "step") or not isinstance(call.func, cst.Attribute):
                continue
            name = dotted(call.func.value)
            if not _SCHEDULER.search(name) or not steps:
                continue
            late = any(
                method_call(other, "update") and "scaler" in self.unit.module.code_for_node(other)
                for other in calls[index + 1 :]
            )
            if index < min(steps) or late:
                what = "the scaler is updated" if late and index > min(steps) else "the optimizer has stepped"
                self.report(
                    call,
                    "TDL420",
                    f"`{name}.step()` comes before {what}: the first value of the schedule is skipped, and a step that the scaler "
                    "leaves out is counted; call it last",
                )
