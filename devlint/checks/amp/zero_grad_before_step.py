"""TDL402 zero-grad-before-step: the gradients are gone before they are used."""

from __future__ import annotations

from collections.abc import Sequence

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.training import is_backward, method_call, step_call
from devlint.semantics.tree import dotted

_HARMLESS = (
    *("zero_grad", "item", "update", "unscale_", "append", "train"),
    *("clip_grad_norm_", "clip_grad_value_"),
)


class ZeroGradBeforeStep(Check):
    rules = (
        Rule(
            "TDL402",
            "zero-grad-before-step",
            "`zero_grad()` between `backward()` and `step()`: the update is lost",
        ),
    )
    triggers = (("zero_grad",), ("backward",), ("step",))

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._block(node.body)

    def visit_Module(self, node: cst.Module) -> None:
        self._block(node.body)

    def _block(self, body: Sequence[cst.BaseStatement]) -> None:
        reset: dict[str, cst.Call] = {}
        differentiated = False
        for statement in body:
            if not isinstance(statement, cst.SimpleStatementLine):
                # A loop or a branch may differentiate again.
                reset, differentiated = {}, False
                continue
            for small in statement.body:
                call = small.value if isinstance(small, (cst.Expr, cst.Assign)) else None
                if not isinstance(call, cst.Call):
                    continue
                step = step_call(self.unit, call)
                if is_backward(call):
                    reset, differentiated = {}, True
                elif method_call(call, "zero_grad") and differentiated and isinstance(call.func, cst.Attribute):
                    reset[dotted(call.func.value)] = call
                elif step is not None and step.optimizer in reset:
                    self._report(call, step.optimizer, reset.pop(step.optimizer))
                elif step is None and not method_call(call, *_HARMLESS):
                    # What is called here may run a backward pass of its own.
                    reset = {}

    def _report(self, step: cst.Call, optimizer: str, reset: cst.Call) -> None:
        self.report(
            reset,
            "TDL402",
            f"`{optimizer}.zero_grad()` throws the gradients away before `step()` has used them: nothing is ever trained; call it "
            "before `backward()`, or let devlint.runtime.TrainStep keep the order",
            evidence=[(step, "the step that finds no gradients")],
        )
