"""TDL416 eval-not-restored: from the second epoch on, the model is trained in evaluation mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import insert_before
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted
from devlint.units import Unit


class EvalNotRestored(Check):
    rules = (
        Rule(
            "TDL416",
            "eval-not-restored",
            "an epoch loop evaluates with `eval()`, and trains on without `train()`",
            fix="unsafe",
        ),
    )
    triggers = (("backward",), ("for", "while"))
    patterns = (r"\.backward\(",)

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only where the file switches something to evaluation."""
        return ".eval()" in unit.source.text and super().wants(unit, names)  # type: ignore[arg-type]

    def visit_For(self, node: cst.For) -> None:
        self._loop(node)

    def visit_While(self, node: cst.While) -> None:
        self._loop(node)

    def _loop(self, loop: cst.For | cst.While) -> None:
        nodes = list(code_below(self.unit, loop.body))
        trains = [node for node in nodes if is_backward(node)]
        if not trains or self._inner(loop, trains[0]) is loop:
            # The loop over batches itself: whoever evaluates inside of it does so now and then.
            return
        for node, model, how in self._evaluations(nodes):
            index = self.unit.index_of(node)
            if index < self.unit.index_of(trains[0]) or self._restored(nodes, model):
                continue
            if not self._used_to_train(loop, trains[0], model):
                continue
            self.report(
                node,
                "TDL416",
                f"`{model}` is switched to evaluation here{how}, and nothing in the loop switches it back: from the second epoch on it trains "
                f"without dropout, and with frozen batch statistics; call `{model}.train()` at the head of each epoch",
                fix=self._fix(loop, model),
                evidence=[(trains[0], "the next epoch trains here")],
            )
            return

    def _inner(self, loop: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode | None:
        """The innermost loop around a node."""
        return self.enclosing(node, cst.For, cst.While)

    def _evaluations(self, nodes: list[cst.CSTNode]) -> Iterator[tuple[cst.CSTNode, str, str]]:
        """Where a model is switched to evaluation: here, or in a function of the file that does not switch it back."""
        for node in nodes:
            if not isinstance(node, cst.Call):
                continue
            if method_call(node, "eval") and not node.args and isinstance(node.func, cst.Attribute):
                if isinstance(self.parent(node), cst.Expr) and dotted(node.func.value):
                    yield node, dotted(node.func.value), ""
            elif isinstance(node.func, cst.Name):
                yield from self._in_a_callee(node, node.func.value)

    def _in_a_callee(self, node: cst.Call, name: str) -> Iterator[tuple[cst.CSTNode, str, str]]:
        found = self.file.placement.world.function(name)
        if found is None:
            return
        unit, function = found
        parameters = [param.name.value for param in function.params.params]
        code = unit.module.code_for_node(function)
        for position, arg in enumerate(node.args):
            parameter = arg.keyword.value if arg.keyword else parameters[position] if position < len(parameters) else ""
            model = dotted(arg.value)
            if not model or not parameter or re.search(rf"\b{parameter}\.train\(", code):
                continue
            if re.search(rf"^\s*{re.escape(parameter)}\.eval\(\)", code, re.M):
                yield node, model, f", in `{name}`"

    def _restored(self, nodes: list[cst.CSTNode], model: str) -> bool:
        """Whether something in the loop may switch the model back."""
        for node in nodes:
            if not isinstance(node, cst.Call):
                continue
            if method_call(node, "train") and isinstance(node.func, cst.Attribute):
                return True
            name = dotted(node.func)
            if not name or method_call(node, "eval"):
                continue
            found = self.file.placement.world.function(name) if "." not in name else None
            if found is not None:
                if re.search(r"\.train\(", found[0].text):
                    return True
            elif any(dotted(arg.value) == model for arg in node.args) or name.startswith("self.") or name == model:
                # Somebody else's function gets hold of the model, or the class's own may.
                if name != model and not self.name(node.func).startswith("torch."):
                    return True
        return False

    def _used_to_train(self, loop: cst.CSTNode, backward: cst.CSTNode, model: str) -> bool:
        """Whether the inner loop that goes backward calls this model."""
        inner = self._inner(loop, backward)
        return inner is not None and any(
            isinstance(node, cst.Call) and dotted(node.func) == model for node in self.unit.below(inner)
        )

    def _fix(self, loop: cst.For | cst.While, model: str) -> Fix | None:
        body = loop.body
        if not isinstance(body, cst.IndentedBlock) or not body.body:
            return None
        first = body.body[0]
        head: cst.CSTNode = first.body[0] if isinstance(first, cst.SimpleStatementLine) else first
        edit = insert_before(self.unit, head, f"{model}.train()")
        return Fix(f"Call `{model}.train()` in each epoch", (edit,), "unsafe") if edit else None
