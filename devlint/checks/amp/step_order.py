"""TDL410 backward-in-autocast and TDL420 scheduler-before-optimizer: the order of a step, as the documentation wants it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.training import is_backward, method_call, step_call
from devlint.semantics.tree import dotted

_AUTOCAST = frozenset(("torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"))
_SCHEDULER = re.compile(r"sched|lr_", re.I)


class StepOrder(Check):
    rules = (
        Rule("TDL410", "backward-in-autocast", "`backward()` inside an autocast block"),
        Rule(
            "TDL420",
            "scheduler-before-optimizer",
            "a learning-rate scheduler steps before its optimizer, or before the scaler is updated",
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
        self._first_of_an_epoch(node)
        for index, call in enumerate(calls):
            if not method_call(call, "step") or not isinstance(call.func, cst.Attribute):
                continue
            name = dotted(call.func.value)
            if not _SCHEDULER.search(name) or not steps or call.args:
                # Called with an epoch, it sets the rate for what follows.
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

    def _first_of_an_epoch(self, block: cst.IndentedBlock) -> None:
        """A scheduler that steps at the head of an epoch, whose batches are drawn by a loop behind it."""
        if not isinstance(self.parent(block), (cst.For, cst.While)):
            return
        for index, statement in enumerate(block.body):
            small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            call = small.value if isinstance(small, cst.Expr) else None
            if not isinstance(call, cst.Call) or not method_call(call, "step") or call.args:
                continue
            assert isinstance(call.func, cst.Attribute)
            name = dotted(call.func.value)
            if (
                not _SCHEDULER.search(name)
                or self._steps(block.body[:index])
                or not self._steps(block.body[index + 1 :])
            ):
                continue
            self.report(
                call,
                "TDL420",
                f"`{name}.step()` comes before the optimizer has stepped: the first value of the schedule is skipped; call it at the end of "
                "the epoch",
            )

    def _steps(self, statements: Sequence[cst.BaseStatement]) -> bool:
        """Whether a loop among the statements steps an optimizer."""
        return any(
            step_call(self.unit, node) is not None
            for statement in statements
            if isinstance(statement, (cst.For, cst.While))
            for node in self.unit.below(statement)
        )
