"""TDL704 accelerator-none: `torch.accelerator.current_accelerator()` may be None."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst


class AcceleratorNone(Check):
    rules = (
        Rule(
            "TDL704",
            "accelerator-none",
            "an attribute of `torch.accelerator.current_accelerator()`, which may be None",
            fix="unsafe",
        ),
    )
    triggers = (("current_accelerator",),)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        call = node.value
        if not isinstance(call, cst.Call) or self.name(call.func) != "torch.accelerator.current_accelerator":
            return
        if call.lpar or self._guarded(node):
            return
        device, needs = self.file.names.spell("torch.device")
        available, also = self.file.names.spell("torch.accelerator.is_available")
        code = self.code(call)
        # Built for an accelerator that the machine lacks, torch names it all the same.
        new = f'({code} if {available}() else {device}("cpu"))'
        self.report(
            node,
            "TDL704",
            f"`{code}` is None where torch was built without an accelerator, and None has no `{node.attr.value}`; write `{new}`, or use "
            "devlint.runtime.best_device()",
            fix=Fix(f"Write `{new}`", (replace(self.unit, call, new),), "unsafe", (*needs, *also)),
        )

    def _guarded(self, node: cst.CSTNode) -> bool:
        child, above = node, self.parent(node)
        while above is not None:
            if isinstance(above, (cst.If, cst.IfExp)) and child is not above.test:
                test = self.unit.module.code_for_node(above.test)
                if "is_available" in test or "accelerator" in test:
                    return True
            if isinstance(above, cst.BooleanOperation) and child is above.right:
                return True
            child, above = above, self.parent(above)
        return False
