"""TDL113 optimizer-state-loaded-before-to: state that was loaded onto the CPU, and stays there."""

from __future__ import annotations

from collections.abc import Sequence

from devlint.checks.base import Check, Rule
from devlint.edits import delete_statement, insert_before
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import move_of
from devlint.semantics.training import looks_like_optimizer
from devlint.semantics.tree import dotted


class OptimizerStateBeforeTo(Check):
    rules = (
        Rule(
            "TDL113",
            "optimizer-state-loaded-before-to",
            "an optimizer's state is loaded before its model is moved, and stays on the CPU",
            fix="unsafe",
        ),
    )
    triggers = (("load_state_dict",), ("parameters",), ("to", "cuda"))
    patterns = (r"\boptim\b|optim\.|Optimizer|Adam|SGD|RMSprop",)

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._block(node.body)

    def visit_Module(self, node: cst.Module) -> None:
        self._block(node.body)

    def _block(self, body: Sequence[cst.BaseStatement]) -> None:
        models: dict[str, str] = {}
        loaded: dict[str, tuple[int, cst.Call]] = {}
        for index, statement in enumerate(body):
            for node in self.unit.below(statement):
                if isinstance(node, cst.Assign):
                    self._built(node, models)
                elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                    owner = dotted(node.func.value)
                    if node.func.attr.value == "load_state_dict" and looks_like_optimizer(owner) and owner in models:
                        loaded[owner] = (index, node)
                    elif isinstance(statement, cst.SimpleStatementLine):
                        self._moved(node, index, body, models, loaded)

    def _built(self, node: cst.Assign, models: dict[str, str]) -> None:
        """Note an optimizer, and the model whose parameters it is built on."""
        call, target = node.value, dotted(node.targets[0].target)
        if not isinstance(call, cst.Call) or not call.args or not target:
            return
        kind = self.name(call.func)
        if kind.startswith("torch.optim.") and kind.count(".") == 2:
            given = call.args[0].value
            if isinstance(given, cst.Call) and dotted(given.func).endswith(".parameters"):
                models[target] = dotted(given.func).rpartition(".")[0]

    def _moved(
        self,
        node: cst.Call,
        index: int,
        body: Sequence[cst.BaseStatement],
        models: dict[str, str],
        loaded: dict[str, tuple[int, cst.Call]],
    ) -> None:
        move = move_of(node)
        if move is None or move.to_cpu:
            return
        model = dotted(move.receiver)
        for optimizer, (at, load) in list(loaded.items()):
            if models[optimizer] != model or self._moves_state(body[at:], optimizer):
                continue
            del loaded[optimizer]
            self.report(
                load,
                "TDL113",
                f"the state of `{optimizer}` is loaded to where `{model}` is now, and does not follow when `{model}` is moved at line "
                f"{self.unit.span(node).line}; move the model first, then load the state",
                fix=self._fix(body[at], body[index]) if index == at + 1 else None,
                evidence=[(node, f"`{model}` is moved here, its optimizer's state is not")],
            )

    def _moves_state(self, body: Sequence[cst.BaseStatement], optimizer: str) -> bool:
        """Whether the program moves the state by hand, loads it again, or hands the optimizer to something that may."""
        loads = 0
        for statement in body:
            for node in self.unit.below(statement):
                if isinstance(node, cst.Attribute) and dotted(node.value) == optimizer:
                    loads += node.attr.value == "load_state_dict"
                    if node.attr.value == "state" or loads > 1:
                        return True
                elif (isinstance(node, cst.Arg) and dotted(node.value) == optimizer) or (
                    isinstance(node, cst.Assign) and dotted(node.targets[0].target) == optimizer
                ):
                    return True
        return False

    def _fix(self, load: cst.BaseStatement, move: cst.BaseStatement) -> Fix | None:
        if not isinstance(load, cst.SimpleStatementLine) or not isinstance(move, cst.SimpleStatementLine):
            return None
        if (
            len(load.body) != 1
            or len(move.body) != 1
            or move.leading_lines
            or self.unit.span(move).end_line != self.unit.span(move).line
        ):
            return None
        text = self.file.source.line(self.unit.span(move).line)
        if "#" in text:
            return None
        taken, put = delete_statement(self.unit, move.body[0]), insert_before(self.unit, load.body[0], text.strip())
        return Fix("Move the model first", (put, taken), "unsafe") if taken and put else None
