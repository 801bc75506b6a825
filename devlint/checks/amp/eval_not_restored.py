"""TDL416 eval-not-restored: training goes on in evaluation mode."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import insert_before
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted

_HARMLESS = frozenset("print len isinstance list save state_dict next iter enumerate tqdm sum str".split())


class EvalNotRestored(Check):
    rules = (
        Rule(
            "TDL416",
            "eval-not-restored",
            "`model.eval()` in the epoch loop, and no `model.train()`",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("eval",), ("backward",), ("for", "while"))
    patterns = (r"\.eval\(\)",)

    def visit_For(self, node: cst.For) -> None:
        self._loop(node)

    def visit_While(self, node: cst.While) -> None:
        self._loop(node)

    def _loop(self, loop: cst.For | cst.While) -> None:
        nodes = list(code_below(self.unit, loop.body))
        backward = next((index for index, node in enumerate(nodes) if is_backward(node)), None)
        if backward is None or self._uses_a_framework() or re.search(r"\.train\b", self.unit.text):
            return
        below = len(self.unit.below(nodes[backward]))
        before = nodes[: backward + below]
        trained = {dotted(node.func) for node in before if isinstance(node, cst.Call) and node.args}
        for node in nodes[backward:]:
            if not method_call(node, "eval") or not isinstance(node, cst.Call) or node.args:
                continue
            assert isinstance(node.func, cst.Attribute)
            model = dotted(node.func.value)
            if model in trained and not self._handed_on(nodes, model):
                self._report(loop, node, model, nodes[backward])
                return

    def _handed_on(self, nodes: list[cst.CSTNode], model: str) -> bool:
        """Whether a function is given the model, and may set its mode."""
        return any(
            isinstance(node, cst.Call)
            and dotted(node.func).rpartition(".")[2] not in _HARMLESS
            and any(dotted(arg.value) == model for arg in node.args)
            for node in nodes
        )

    def _uses_a_framework(self) -> bool:
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        return not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"})

    def _report(self, loop: cst.For | cst.While, evaluated: cst.Call, model: str, backward: cst.CSTNode) -> None:
        text = f"{model}.train()"
        first = loop.body.body[0] if isinstance(loop.body, cst.IndentedBlock) else None
        edit = insert_before(self.unit, first, text) if first is not None else None
        self.report(
            evaluated,
            "TDL416",
            f"`{model}` stays in evaluation mode: from the next round of the loop on it is trained without dropout, and with frozen "
            f"batch statistics; call `{text}` at the start of the round",
            fix=Fix(f"Call `{text}`", (edit,), "unsafe") if edit else None,
            evidence=[(backward, "trained in the same loop")],
        )
