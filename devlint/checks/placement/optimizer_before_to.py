"""TDL112 optimizer-before-to: an optimizer that holds the parameters from before a move."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import move_of
from devlint.semantics.tree import dotted


class OptimizerBeforeTo(Check):
    rules = (
        Rule(
            "TDL112",
            "optimizer-before-to",
            "an optimizer is built before its model is moved, or replaced by a copy",
        ),
    )
    triggers = (("parameters",), ("to", "cuda", "half"))
    patterns = (r"\boptim\b|optim\.|Optimizer|Adam|SGD|RMSprop",)

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._block(node.body)

    def visit_Module(self, node: cst.Module) -> None:
        self._block(node.body)

    def _block(self, body: object) -> None:
        optimizers: dict[str, tuple[str, cst.Call, str]] = {}
        for statement in body:  # type: ignore[attr-defined]
            if isinstance(statement, cst.If) and optimizers:
                # `if args.cuda: model.cuda()`: the move is conditional, what came before it is not.
                for inner in self.unit.below(statement):
                    if isinstance(inner, (cst.Assign, cst.Expr)) and isinstance(inner.value, cst.Call):
                        target = dotted(inner.targets[0].target) if isinstance(inner, cst.Assign) else ""
                        self._moved(inner.value, target, optimizers)
                continue
            if not isinstance(statement, cst.SimpleStatementLine):
                continue
            for small in statement.body:
                value = small.value if isinstance(small, (cst.Assign, cst.Expr)) else None
                if not isinstance(value, cst.Call):
                    continue
                target = dotted(small.targets[0].target) if isinstance(small, cst.Assign) else ""
                kind = self.name(value.func)
                if kind.startswith("torch.optim.") and kind.count(".") == 2 and value.args and target:
                    model = re.fullmatch(
                        r"\s*([\w.]+)\.parameters\(\)", self.unit.module.code_for_node(value.args[0].value)
                    )
                    if model:
                        optimizers[model[1]] = (target, value, kind.rpartition(".")[2])
                    continue
                self._moved(value, target, optimizers)

    def _mended_behind(self, move: cst.Call, name: str) -> bool:
        """Whether the optimizer is built anew behind the move, or its state is moved by hand."""
        scope = self.enclosing(move, cst.FunctionDef) or self.unit.module
        for node in self.unit.below(scope):
            if self.unit.index_of(node) > self.unit.index_of(move):
                if isinstance(node, cst.Assign) and dotted(node.targets[0].target) == name:
                    return True
                if isinstance(node, cst.Attribute) and node.attr.value == "state" and dotted(node.value) == name:
                    return True
        return False

    def _moved(self, value: cst.Call, target: str, optimizers: dict[str, tuple[str, cst.Call, str]]) -> None:
        move = move_of(value)
        if move is None or move.to_cpu:
            return
        receiver = dotted(move.receiver)
        copied = isinstance(move.receiver, cst.Call) and dotted(move.receiver.func).endswith("deepcopy") and target
        model = target if copied else receiver
        if model not in optimizers or (target and target != model):
            return
        name, built, kind = optimizers.pop(model)
        if self._mended_behind(value, name):
            return
        if copied:
            why = f"`{name}` holds the parameters of the old `{model}`, and the copy is never trained"
        else:
            why = (
                f"`{name}` was built on the parameters as they were: state that `{kind}` makes at once, such as Adagrad's, stays on "
                "the CPU, and where a backend replaces parameters, the optimizer holds the old ones"
            )
        self.report(
            value,
            "TDL112",
            f"{why}; move the model first, then build the optimizer",
            evidence=[(built, "the optimizer is built here")],
        )
