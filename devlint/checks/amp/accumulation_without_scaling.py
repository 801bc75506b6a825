"""TDL419 accumulation-without-scaling: a sum over micro-batches that is stepped as if it were a mean."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.training import code_below, is_backward, method_call, step_call


class AccumulationWithoutScaling(Check):
    rules = (
        Rule(
            "TDL419",
            "accumulation-without-scaling",
            "gradients of several batches are added up, and no loss is divided by their number",
            default=False,
        ),
    )
    triggers = (("backward",), ("step",))
    patterns = (r"%",)

    def visit_If(self, node: cst.If) -> None:
        divisor = self._divisor(node.test)
        loop = self.enclosing(node, cst.For, cst.While, cst.FunctionDef)
        if not divisor or loop is None or isinstance(loop, cst.FunctionDef) or self._uses_a_framework():
            return
        inside = set(code_below(self.unit, node))
        step = next((step for part in inside if (step := step_call(self.unit, part)) is not None), None)
        outside = [part for part in code_below(self.unit, loop.body) if part not in inside]
        backward = next((part for part in outside if is_backward(part)), None)
        if step is None or backward is None or any(method_call(part, "zero_grad") for part in outside):
            return
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        if self._divides(scope, divisor):
            return
        self.report(
            backward,
            "TDL419",
            f"the gradients of `{divisor}` batches are added up here and none is divided by `{divisor}`: the step is that many times as "
            f"long as one over the whole batch; write `(loss / {divisor}).backward()`",
            evidence=[(step.node, "the optimizer steps only here")],
        )

    def _divisor(self, test: cst.BaseExpression) -> str:
        """`k` in `(i + 1) % k == 0`, in `not i % k`, or in `… or i == last`; else an empty string."""
        for part in self.unit.below(test):
            if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Modulo):
                return self.unit.module.code_for_node(part.right)
        return ""

    def _divides(self, scope: cst.CSTNode, divisor: str) -> bool:
        """Whether the function divides by `divisor`, or by anything just before the backward pass."""
        text = self.unit.module.code_for_node(scope)
        last = re.escape(divisor.rpartition(".")[2])
        divides = rf"(?:/=?\s*|div_?\(|/\s*float\(|/\s*\()\s*(?:\w+\.)*{last}(?!\w)|loss\w*\s*/=?|/\s*accum"
        # A number of batches that is itself worked out from a nominal batch size: the losses are sums on purpose.
        nominal = rf"\b{last}\s*=[^\n]*/"
        return re.search(f"{divides}|{nominal}", text) is not None

    def _uses_a_framework(self) -> bool:
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        return not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"})
