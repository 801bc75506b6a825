"""TDL124 uncalled-is-available: a function stands where its answer is meant."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst

_QUERIES = frozenset(
    f"torch.{module}.{query}"
    for module in ("cuda", "mps", "xpu", "accelerator", "backends.mps", "backends.cuda", "distributed", "npu")
    for query in ("is_available", "is_initialized", "is_built", "is_nccl_available", "is_gloo_available")
) | frozenset(
    f"torch.{module}.{query}"
    for module in ("cuda", "xpu", "accelerator", "mps")
    for query in ("device_count", "current_device", "is_bf16_supported")
)


class UncalledIsAvailable(Check):
    rules = (
        Rule(
            "TDL124",
            "uncalled-is-available",
            "`torch.cuda.is_available` tested without being called, which is always true",
            fix="unsafe",
        ),
    )
    triggers = (("is_available", "is_initialized", "is_built", "device_count", "current_device", "is_bf16_supported"),)

    def visit_If(self, node: cst.If) -> None:
        self._test(node.test)

    def visit_While(self, node: cst.While) -> None:
        self._test(node.test)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._test(node.test)

    def visit_Assert(self, node: cst.Assert) -> None:
        self._test(node.test)

    def visit_UnaryOperation(self, node: cst.UnaryOperation) -> None:
        if isinstance(node.operator, cst.Not):
            self._test(node.expression)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        self._test(node.left)
        self._test(node.right)

    def visit_Comparison(self, node: cst.Comparison) -> None:
        for operand in (node.left, *(target.comparator for target in node.comparisons)):
            self._test(operand)

    def _test(self, node: cst.BaseExpression) -> None:
        if isinstance(node, (cst.Name, cst.Attribute)) and self.name(node) in _QUERIES:
            code = self.code(node)
            fix = Fix(f"Call `{code}`", (replace(self.unit, node, code + "()"),), "unsafe")
            self.report(
                node,
                "TDL124",
                f"`{code}` is a function, and a function is always true; call it: `{code}()`",
                fix=fix,
            )
