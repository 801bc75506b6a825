"""TDL206 loss-accumulation-retains-graph: a running total that keeps every step's graph alive."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted

_FREED = re.compile(r"\.(?:item|detach|tolist|numpy|data)\b|\bfloat\(|no_grad|inference_mode")

_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled\(False")


class LossAccumulation(Check):
    rules = (
        Rule(
            "TDL206",
            "loss-accumulation-retains-graph",
            "a running total of losses that keeps every step's graph alive",
            fix="safe",
        ),
    )
    triggers = (("backward",), ("for", "while"))
    patterns = (r"\+=|\.\s*\w+\(|=\s*\w+\s*\+",)

    def visit_For(self, node: cst.For) -> None:
        self._loop(node)

    def visit_While(self, node: cst.While) -> None:
        self._loop(node)

    def _loop(self, loop: cst.For | cst.While) -> None:
        nodes = list(code_below(self.unit, loop.body))
        losses = {name for node in nodes if is_backward(node) for name in [self._differentiated(node)] if name}
        if not losses:
            return
        terms = self._terms(nodes, losses)
        losses |= terms
        scope = self.enclosing(loop, cst.FunctionDef) or self.unit.module
        totals = {self._differentiated(node) for node in self.unit.below(scope) if method_call(node, "backward")}
        for node in nodes:
            found = self._accumulated(node)
            if found is None or self._without_graph(node):
                continue
            total, value, loss = found
            if not total or loss not in losses or total in totals or total == loss or self._is_freed(nodes, loss):
                continue
            if self._innermost(node) is loop or loss in terms:
                self._report(value, total, loss)

    def _without_graph(self, node: cst.CSTNode) -> bool:
        """Whether gradients are switched off around the node."""
        around = self.enclosing(node, cst.With)
        while around is not None:
            if any(_OFF.search(self.unit.module.code_for_node(item.item)) for item in around.items):
                return True
            around = self.enclosing(around, cst.With)
        return False

    def _terms(self, nodes: list[cst.CSTNode], losses: set[str]) -> set[str]:
        """The names that a loop over the terms of a loss, a dictionary that is summed up, gives to each of them."""
        code = self.unit.module.code_for_node
        summed = " ".join(
            code(node.value)
            for node in nodes
            if isinstance(node, cst.Assign) and dotted(node.targets[0].target) in losses
        )
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, cst.For) and isinstance(node.target, cst.Tuple) and len(node.target.elements) == 2:
                held = re.fullmatch(r"(\w+)\.items\(\)", code(node.iter).strip())
                if held and re.search(rf"\bsum\(.*\b{held[1]}\.(?:values|items)\(\)", summed):
                    found.add(dotted(node.target.elements[1].value))
        return found - {""}

    def _differentiated(self, node: cst.CSTNode) -> str:
        """The name that a backward pass starts from, also through `scaler.scale(loss)` and arithmetic."""
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        value = node.func.value
        if method_call(value, "scale") and isinstance(value, cst.Call) and value.args:
            value = value.args[0].value
        if isinstance(value, cst.BinaryOperation):
            value = value.left
        return dotted(value)

    def _accumulated(self, node: cst.CSTNode) -> tuple[str, cst.BaseExpression, str] | None:
        """(total, the added expression, the loss in it) where `node` adds a loss to something that outlives it."""
        if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
            return self._held(node.target), node.value, self._loss_in(node.value)
        if isinstance(node, cst.Assign) and len(node.targets) == 1 and isinstance(node.value, cst.BinaryOperation):
            total = self._held(node.targets[0].target)
            if isinstance(node.value.operator, cst.Add) and total and self._held(node.value.left) == total:
                return total, node.value.right, self._loss_in(node.value.right)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
            held, value = node.func.value, node.args[0].value
            total = self._held(held)
            if node.func.attr.value == "append" and len(node.args) == 1:
                return total, value, dotted(value)
            if node.args[0].keyword is None and self._sums(node.func.attr.value):
                return total, value, self._loss_in(value)
        return None

    def _held(self, node: cst.BaseExpression) -> str:
        """The name of what sums up: a variable, an attribute, or an entry of something."""
        return dotted(node) or (self.code(node) if isinstance(node, cst.Subscript) else "")

    def _sums(self, method: str) -> bool:
        """Whether the one method of that name in the file adds its first argument, as it is, to an attribute."""
        methods = [
            (unit, function)
            for unit in self.file.units
            if method in unit.words and f"def {method}(" in unit.text and unit.name
            for function in unit.below(unit.module, cst.FunctionDef)
            if function.name.value == method and isinstance(unit.enclosing(function, cst.ClassDef), cst.ClassDef)
        ]
        if len(methods) != 1:
            return False
        unit, function = methods[0]
        names = [param.name.value for param in function.params.params]
        annotated = len(names) > 1 and function.params.params[1].annotation is not None
        if len(names) < 2 or annotated or _FREED.search(unit.module.code_for_node(function)):
            return False
        return any(
            isinstance(added.operator, cst.AddAssign)
            and dotted(added.target).startswith("self.")
            and self._loss_in(added.value) == names[1]
            for added in unit.below(function, cst.AugAssign)
        ) and not any(dotted(target.target) == names[1] for target in unit.below(function, cst.AssignTarget))

    def _loss_in(self, value: cst.BaseExpression) -> str:
        while isinstance(value, cst.BinaryOperation) and isinstance(value.operator, (cst.Multiply, cst.Divide)):
            value = value.left
        return dotted(value)

    def _is_freed(self, nodes: list[cst.CSTNode], loss: str) -> bool:
        """Whether the name is given a number, or a tensor without a graph, somewhere in the loop."""
        code = self.unit.module.code_for_node
        return any(
            isinstance(node, cst.Assign)
            and any(dotted(target.target) == loss for target in node.targets)
            and _FREED.search(code(node.value))
            for node in nodes
        )

    def _innermost(self, node: cst.CSTNode) -> cst.CSTNode | None:
        above = self.parent(node)
        while above is not None and not isinstance(above, (cst.For, cst.While)):
            above = self.parent(above)
        return above

    def _report(self, value: cst.BaseExpression, total: str, loss: str) -> None:
        bare: cst.BaseExpression = value
        while isinstance(bare, cst.BinaryOperation):
            bare = bare.left
        at = self.unit.offsets(bare)[1]
        self.report(
            value,
            "TDL206",
            f"`{total}` keeps the graph of every `{loss}` alive, and the memory grows with each step; add `{loss}.detach()`, or let "
            "devlint.runtime.Mean sum on the device",
            fix=Fix(f"Detach `{loss}`", (Edit(at, at, ".detach()"),), "safe"),
        )
