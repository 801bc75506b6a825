"""TDL109 module-created-in-forward: a layer that is new, untrained and on the CPU in every call."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.flow.api import PARAMETRIC
from devlint.semantics.tree import dotted


class ModuleCreatedInForward(Check):
    rules = (
        Rule(
            "TDL109",
            "module-created-in-forward",
            "a layer with parameters is built in `forward`: new, untrained and on the CPU in every call",
        ),
    )
    triggers = (("forward",), tuple(sorted(name.rpartition(".")[2] for name in PARAMETRIC)))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        owner = self.enclosing(node, cst.ClassDef)
        if node.name.value != "forward" or owner is None:
            return
        if not self.file.placement.world.is_module(self.unit, owner):
            return
        for inner in self.unit.below(node):
            if isinstance(inner, cst.Call) and self.name(inner.func) in PARAMETRIC and not self._kept(inner):
                name = self.unit.module.code_for_node(inner.func)
                self.report(
                    inner,
                    "TDL109",
                    f"`{name}(…)` is built anew in every forward pass: its parameters are random, on the CPU, unknown to the "
                    "optimizer and to the `state_dict`; build it in `__init__`",
                )

    def _kept(self, node: cst.Call) -> bool:
        """Whether the layer is stored on `self`, or takes its parameters from elsewhere."""
        above = self.parent(node)
        while above is not None and not isinstance(above, (cst.SimpleStatementLine, cst.FunctionDef)):
            if isinstance(above, cst.Assign):
                return any(dotted(target.target).startswith("self.") for target in above.targets)
            above = self.parent(above)
        return any(
            arg.keyword is not None and arg.keyword.value in ("affine", "elementwise_affine") for arg in node.args
        )
