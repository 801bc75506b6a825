"""TDL414 eval-without-no-grad: an evaluation that builds graphs nobody uses."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import insert_before
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.training import method_call
from devlint.semantics.tree import dotted

_GRAD = re.compile(r"no_grad|inference_mode|set_grad_enabled|grad|backward|train\(\)|volatile|attack|adversar")
_LOADER = re.compile(r"load|\bdl\b|_dl\b|iter|data|batches", re.I)


class EvalWithoutNoGrad(Check):
    rules = (Rule("TDL414", "eval-without-no-grad", "an evaluation loop that builds graphs", fix="unsafe"),)
    triggers = (("eval",), ("for",), ("def",))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        models = [
            dotted(inner.func.value)
            for inner in self.unit.below(node)
            if method_call(inner, "eval") and isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute)
        ]
        if not models or self._uses_a_framework() or _GRAD.search(self.unit.module.code_for_node(node)):
            return
        for loop in self.unit.below(node):
            if not isinstance(loop, cst.For) or not _LOADER.search(self.unit.module.code_for_node(loop.iter)):
                continue
            forward = next(
                (
                    c
                    for c in self.unit.below(loop.body)
                    if isinstance(c, cst.Call) and dotted(c.func) in models and c.args
                ),
                None,
            )
            if forward is not None and not self._called_without_grad(node.name.value):
                self._report(node, loop, forward)
                return

    def _uses_a_framework(self) -> bool:
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        return not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"})

    def _called_without_grad(self, name: str) -> bool:
        """Whether the file calls the function under `no_grad`, or switches gradients off for good."""
        text = self.file.source.text
        if re.search(r"^[^#\n]*set_grad_enabled\(\s*False\s*\)", text, re.M):
            return True
        pattern = rf"(?:no_grad|inference_mode)\(\)[^\n]*:\r?(?:\n[^\n]*){{0,15}}?\b{re.escape(name)}\("
        return re.search(pattern, text) is not None

    def _report(self, function: cst.FunctionDef, loop: cst.For, forward: cst.Call) -> None:
        spelled, needs = self.file.names.spell("torch.no_grad")
        edit = insert_before(self.unit, function, f"@{spelled}()")
        self.report(
            loop,
            "TDL414",
            f"`{dotted(forward.func)}` is evaluated here with gradients on: every batch builds a graph that nobody uses, and the "
            f"memory of it; decorate the function with `@{spelled}()`, or use `with torch.inference_mode():`",
            fix=Fix(f"Decorate with `@{spelled}()`", (edit,), "unsafe", needs) if edit else None,
            evidence=[(forward, "the forward pass")],
        )
