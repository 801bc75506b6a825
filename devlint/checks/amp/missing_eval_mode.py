"""TDL415 missing-eval-mode: an evaluation with dropout on, and with the batch's own statistics."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import insert_after, insert_before
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.batch_loops import iterated
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.grad_mode import GradMode
from devlint.semantics.imports import bound_at
from devlint.semantics.mode_layers import ModeLayers
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted

_EVAL_NAME = re.compile(
    r"(?:^|[_.])(?:val|valid|validation|test|testing|eval|evaluation|dev)(?:[_\d]|$|(?=loader|set|data|dl|iter|batch))",
    re.I,
)
_LOADER_NAME = re.compile(r"load|dl\b|_dl|iter|data|set|batch", re.I)
# Whatever may switch the mode, here or in the class; and evaluations that want dropout, or the batch's statistics.
_SWITCHES = re.compile(
    r"^[^#\n]*(?:\.eval\b(?!\(\))|\.train\((?!\s*(?:True|mode\s*=\s*True)?\s*\))|\.training\s*=|set_\w*mode|evaluating\(|_eval\w*\(\s*(?:self\.)?\w*(?:model|net)\w*\s*\))",
    re.M,
)
_ON_PURPOSE = re.compile(r"\bmc_|monte|uncertain|bayes|update_bn|stochastic|calibrat|ensembl|dropout_samples", re.I)


class MissingEvalMode(Check):
    rules = (
        Rule(
            "TDL415",
            "missing-eval-mode",
            "an evaluation without gradients, of a module that is left in training mode",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("no_grad", "inference_mode", "set_grad_enabled"), ("for",))

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._layers, self._modes = ModeLayers(file), GradMode(file.names)
        text = file.source.text
        roots = {target.partition(".")[0] for targets in file.names.aliases.values() for target in targets}
        framework = not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"})
        self._silent = framework or _SWITCHES.search(text) is not None or _ON_PURPOSE.search(text) is not None

    def visit_For(self, node: cst.For) -> None:
        if self._silent or not any(self._is_evaluated(dotted(read)) for read in iterated(node.iter)):
            return
        nodes = list(code_below(self.unit, node.body))
        if any(is_backward(inner) for inner in nodes):
            return
        for call in nodes:
            if (
                isinstance(call, cst.Call)
                and call.args
                and dotted(call.func)
                and self._modes.around(call, self.unit) is False
            ):
                layer = self._layers.of(call.func, self.unit)
                if layer and not self._switched(call.func):
                    self._report(node, call, layer)
                    return

    def _is_evaluated(self, name: str) -> bool:
        last = name.rpartition(".")[2]
        return _EVAL_NAME.search(last) is not None and _LOADER_NAME.search(last) is not None

    def _switched(self, model: cst.BaseExpression) -> bool:
        """Whether the file calls `eval()` of what may be this module, or hold it."""
        for unit in self.file.units:
            if "eval" in unit.words:
                for node in unit.below(unit.module):
                    if (
                        method_call(node, "eval")
                        and isinstance(node, cst.Call)
                        and isinstance(node.func, cst.Attribute)
                    ):
                        if self._layers.shares(node.func.value, unit, model, self.unit):
                            return True
        return False

    def _switches_off(self, context: cst.BaseExpression) -> bool:
        return self._modes.of_context(context, self.unit, True) is False

    def _report(self, loop: cst.For, call: cst.Call, layer: str) -> None:
        model = dotted(call.func)
        what = "reads `self.training`" if layer == "self.training" else f"has `{layer}` layers"
        self.report(
            call,
            "TDL415",
            f"`{model}` {what}, and nothing in the file switches it to evaluation: the figures of this loop are those of training mode; "
            f"call `{model}.eval()` before, and `{model}.train()` after, or train with devlint.runtime.fit, which does both",
            fix=self._fix(loop, model),
            evidence=[(loop, "the loop over evaluation data")],
        )

    def _fix(self, loop: cst.For, model: str) -> Fix | None:
        """Switch to evaluation before the block, and back behind it where the file trains."""
        block: cst.CSTNode = loop
        above = self.parent(loop)
        while above is not None and not isinstance(above, (cst.FunctionDef, cst.For, cst.While)):
            if isinstance(above, cst.With) and any(self._switches_off(item.item) for item in above.items):
                block = above
            above = self.parent(above)
        inside = self.unit.below(block)
        if any(model.partition(".")[0] in bound_at(inner) for inner in inside):
            return None
        before = insert_before(self.unit, block, f"{model}.eval()")
        if before is None:
            return None
        if "backward" not in self.file.words:
            return Fix(f"Call `{model}.eval()` before", (before,), "unsafe")
        after = insert_after(self.unit, block, f"{model}.train()")
        if after is None or any(isinstance(inner, (cst.Return, cst.Raise)) for inner in inside):
            return None
        return Fix(f"Call `{model}.eval()` before and `{model}.train()` after", (before, after), "unsafe")
