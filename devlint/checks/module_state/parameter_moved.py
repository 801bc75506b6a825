"""TDL603 parameter-moved-after-wrap: what is moved after wrapping is a parameter no more."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import balanced, move_of
from devlint.semantics.tree import dotted


class ParameterMoved(Check):
    rules = (
        Rule(
            "TDL603",
            "parameter-moved-after-wrap",
            "`nn.Parameter(…).to(device)`, which is a plain tensor and not registered",
            fix="unsafe",
        ),
    )
    triggers = (("Parameter",), ("to", "cuda"))
    patterns = (rf"\bParameter\s*\({balanced()}\)\s*\.\s*(?:to|cuda)\s*\(",)

    def visit_Call(self, node: cst.Call) -> None:
        move = move_of(node)
        if move is None or move.to_cpu or not isinstance(move.receiver, cst.Call):
            return
        wrapped = move.receiver
        if self.name(wrapped.func) != "torch.nn.Parameter" or not wrapped.args:
            return
        target = self.parent(node)
        if not isinstance(target, cst.Assign) or not dotted(target.targets[0].target).startswith("self."):
            return
        name = dotted(target.targets[0].target)
        start, end = self.unit.offsets(wrapped)[1], self.unit.offsets(node)[1]
        suffix = self.file.source.text[start:end]
        inner = self.unit.offsets(wrapped.args[0].value)[1]
        edits = (Edit(inner, inner, suffix), Edit(start, end, ""))
        simple = "\n" not in suffix and not wrapped.lpar and not getattr(wrapped.args[0].value, "rpar", None)
        self.report(
            node,
            "TDL603",
            f"on an accelerator `{name}` is not a parameter but the copy of one: it is not registered, the optimizer does not see "
            "it, and it gets no gradient; move the tensor inside `nn.Parameter(…)`, or the module as a whole",
            fix=Fix("Move the tensor inside `nn.Parameter`", edits, "unsafe") if simple else None,
        )
