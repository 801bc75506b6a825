"""TDL709 visible-devices-too-late: the GPUs are chosen after CUDA has looked at them."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.tree import dotted


class VisibleDevices(Check):
    rules = (
        Rule(
            "TDL709",
            "visible-devices-too-late",
            "`CUDA_VISIBLE_DEVICES` is set after CUDA was first used",
        ),
    )
    triggers = (("CUDA_VISIBLE_DEVICES",), ("cuda",))

    def visit_Module(self, node: cst.Module) -> None:
        if not self.unit.name:
            self._block(node)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._block(node.body)

    def _block(self, body: cst.BaseSuite | cst.Module) -> None:
        first: cst.CSTNode | None = None
        for statement in body.body:
            if not isinstance(statement, cst.SimpleStatementLine):
                continue
            if first is not None and any(self._sets(small) for small in statement.body):
                self.report(
                    statement,
                    "TDL709",
                    "CUDA was used before this line and has counted its devices: the setting comes too late, and the wrong GPU may be "
                    "taken; set it before the first CUDA call, best before `import torch`, or in the shell",
                    evidence=[(first, "CUDA is used here")],
                )
                return
            if first is None:
                first = next((inner for inner in self.unit.below(statement) if self._uses(inner)), None)

    def _sets(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Assign):
            return False
        target = node.targets[0].target
        if not isinstance(target, cst.Subscript) or dotted(target.value) not in ("os.environ", "environ"):
            return False
        index = target.slice[0].slice
        return isinstance(index, cst.Index) and string_value(index.value) == "CUDA_VISIBLE_DEVICES"

    def _uses(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call):
            return False
        if self.name(node.func).startswith("torch.cuda."):
            return True
        if not isinstance(node.func, cst.Attribute):
            return False
        moved = (
            node.func.attr.value == "to"
            and bool(node.args)
            and (string_value(node.args[0].value) or "").startswith("cuda")
        )
        return moved or (node.func.attr.value == "cuda" and not node.args)
