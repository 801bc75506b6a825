"""TDL111 requires-grad-before-move: the copy of a leaf is no leaf, and gets no gradient."""

from __future__ import annotations

from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, Move, keyword_is, move_of
from devlint.semantics.flow.api import CPU_CONSTRUCTORS, LIKE
from devlint.semantics.tree import dotted

_LEAVES = FACTORIES | LIKE | CPU_CONSTRUCTORS | {"torch.autograd.Variable"}


class RequiresGradBeforeMove(Check):
    rules = (
        Rule(
            "TDL111",
            "requires-grad-before-move",
            "a tensor that requires gradients is moved: what is trained or read is a copy that gets none",
            fix="unsafe",
        ),
    )
    triggers = (("requires_grad", "requires_grad_"), ("to", "cuda"))
    patterns = (r"\boptim\b|Adam|SGD|LBFGS|RMSprop|Optimizer|\.\s*grad\b",)

    def visit_Assign(self, node: cst.Assign) -> None:
        target = dotted(node.targets[0].target)
        call = node.value.elt if isinstance(node.value, cst.ListComp) else node.value
        if not isinstance(call, cst.Call) or len(node.targets) != 1 or not target:
            return
        move = move_of(call)
        if move is None or move.to_cpu or argument(call, "memory_format"):
            return
        leaf = self._leaf(move.receiver, node)
        if leaf is None or self._keeps_its_gradient(node, target):
            return
        use = next(self._uses(node, target), None)
        if use is None:
            return
        what = "is handed to the optimizer" if isinstance(use, cst.Call) else "has its `.grad` read"
        self.report(
            call,
            "TDL111",
            f"`{target}` is the moved copy of a tensor that requires gradients, not a leaf: it {what}, and gets none there"
            "; create the tensor on the device, or call `.requires_grad_()` after the move",
            fix=self._fix(call, move),
            evidence=[(leaf, "gradients are asked for here, before the move"), (use, f"`{target}` {what} here")],
        )

    def _leaf(self, node: cst.BaseExpression, assignment: cst.Assign) -> cst.Call | None:
        """The call that asks for gradients on what `node` is, where `node` is then a leaf that was just made."""
        if isinstance(node, cst.Call):
            if keyword_is(node, "requires_grad", "True") and self.name(node.func) in _LEAVES:
                return node
            if isinstance(node.func, cst.Attribute) and node.func.attr.value == "requires_grad_" and not node.args:
                return node
            return None
        name = dotted(node)
        if not name or name != dotted(assignment.targets[0].target):
            return None
        scope = self._scope(assignment)
        values = [
            other.value
            for other in self.unit.below(scope)
            if isinstance(other, cst.Assign) and other is not assignment and dotted(other.targets[0].target) == name
        ]
        return self._leaf(values[0], assignment) if len(values) == 1 and isinstance(values[0], cst.Call) else None

    def _keeps_its_gradient(self, node: cst.Assign, name: str) -> bool:
        """Whether the copy is made a leaf again, or is told to keep its gradient."""
        for other in self.unit.below(self._scope(node)):
            if isinstance(other, cst.Attribute) and dotted(other.value) == name:
                if other.attr.value in ("retain_grad", "requires_grad_", "detach_", "requires_grad"):
                    return True
            elif isinstance(other, cst.Assign) and other is not node and dotted(other.targets[0].target) == name:
                if any(
                    isinstance(inner, cst.Attribute) and inner.attr.value == "detach"
                    for inner in self.unit.below(other)
                ):
                    return True
        return False

    def _uses(self, node: cst.Assign, name: str) -> Iterator[cst.CSTNode]:
        """Where an optimizer is given the copy, or its gradient is read, after the move."""
        scope = self._scope(node)
        behind = [other for other in self.unit.below(scope) if self.unit.index_of(other) > self.unit.index_of(node)]
        held = {name}
        for other in behind:
            if isinstance(other, cst.Assign) and isinstance(other.value, (cst.List, cst.Tuple)):
                if any(dotted(element.value) in held for element in other.value.elements):
                    held.add(dotted(other.targets[0].target))
            elif isinstance(other, cst.Attribute) and other.attr.value == "grad" and dotted(other.value) == name:
                yield other
            elif isinstance(other, cst.Call) and self._is_optimizer(other):
                if any(self._holds(arg.value, held) for arg in other.args[:1]):
                    yield other

    def _is_optimizer(self, call: cst.Call) -> bool:
        name = self.name(call.func)
        return name.startswith("torch.optim.") and name.count(".") == 2

    def _holds(self, node: cst.BaseExpression, names: set[str]) -> bool:
        return any(dotted(inner) in names for inner in self.unit.below(node))

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode:
        kind = (
            cst.ClassDef
            if isinstance(node, cst.Assign) and dotted(node.targets[0].target).startswith("self.")
            else cst.FunctionDef
        )
        return self.enclosing(node, kind) or self.unit.module

    def _fix(self, call: cst.Call, move: Move) -> Fix | None:
        start, end = self.unit.offsets(move.receiver)[1], self.unit.offsets(call)[1]
        suffix = self.file.source.text[start:end]
        if "#" in suffix or "\n" in suffix or getattr(move.receiver, "rpar", None):
            return None
        leaf = move.receiver
        if isinstance(leaf, cst.Call) and self.name(leaf.func) in FACTORIES and not has_unpacking(leaf):
            only_waits = all(arg.keyword is not None and arg.keyword.value == "non_blocking" for arg in move.others)
            if argument(leaf, "device") is None and move.dtype is None and only_waits:
                added = add_argument(self.unit, leaf, f"device={move.device}")
                if added is not None:
                    return Fix("Create the tensor on the device", (added, Edit(start, end, "")), "unsafe")
        if isinstance(leaf, cst.Call) and self.name(leaf.func) == "torch.autograd.Variable":
            return None
        if (
            isinstance(leaf, cst.Call)
            and isinstance(leaf.func, cst.Attribute)
            and leaf.func.attr.value == "requires_grad_"
        ):
            inner = self.unit.offsets(leaf.func.value)[1]
            edits = (Edit(inner, inner, suffix), Edit(start, end, ""))
            return Fix("Ask for gradients after the move", edits, "unsafe") if not leaf.func.value.rpar else None
        return Fix("Make the copy a leaf of its own", (Edit(end, end, ".detach().requires_grad_()"),), "unsafe")
