"""TDL208 loop-invariant-transfer: the same tensor is copied to the device again in every step."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import move_of
from devlint.semantics.imports import bound_at
from devlint.semantics.training import code_below, is_backward, step_call

# What may be asked of the tensor in the loop without any chance that it changes.
_READ = frozenset("shape size dim ndim dtype device numel".split())
_ON_DEVICE = re.compile(r"\.\s*(?:to|cuda)\s*\(|device\s*=|cuda")
_COMPREHENSIONS = ("ListComp", "SetComp", "DictComp", "GeneratorExp")


class LoopInvariantTransfer(Check):
    rules = (
        Rule(
            "TDL208",
            "loop-invariant-transfer",
            "a tensor from before a training or evaluation loop that every step copies to the device again",
            default=False,
        ),
    )
    triggers = (("to", "cuda"), ("for", "while"))
    patterns = (r"(?<![\w.])[A-Za-z_]\w*\s*\.\s*(?:to|cuda)\s*\(", r"backward\s*\(|\.step\s*\(|loader")

    def visit_Call(self, node: cst.Call) -> None:
        move = move_of(node)
        if move is None or move.to_cpu or not isinstance(move.receiver, cst.Name):
            return
        name = move.receiver.value
        if isinstance(self.parent(node), cst.Expr):
            # A module or a batch that is moved in place: the second time copies nothing.
            return
        loops = self._loops(node)
        if not any(self._is_training(loop) for loop in loops):
            return
        bound = {found for inner in self.unit.below(loops[-1]) for found in bound_at(inner)}
        if any(isinstance(inner, cst.Name) and inner.value in bound for inner in self.unit.below(node)):
            return
        binding = self._binding(node, name, loops[-1])
        if binding is None or self._changes(name, loops[-1]) or self._result_changes(node, loops[-1]):
            return
        self.report(
            node,
            "TDL208",
            f"`{name}` is not assigned in this loop, and every step copies it to `{move.device}` again: write "
            f"`{name} = {self.code(node)}` before the loop",
            evidence=[(binding, f"`{name}` is bound here, outside the loop"), (loops[-1], "the loop")],
        )

    def _loops(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The loops of the function around the node, innermost first; none where a condition stands between."""
        found: list[cst.CSTNode] = []
        child, above = node, self.parent(node)
        while above is not None and not isinstance(above, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            if isinstance(above, (cst.For, cst.While)):
                if child is not above.body:
                    # The head of a `for` and the `else` run once.
                    child, above = above, self.parent(above)
                    continue
                if any(_leaves(statement) for statement in above.body.body):
                    return []
                found.append(above)
            elif type(above).__name__ in _COMPREHENSIONS:
                found.append(above)
            elif isinstance(above, (cst.If, cst.IfExp, cst.BooleanOperation, cst.ExceptHandler)) and not any(
                isinstance(outer, (cst.For, cst.While)) for outer in found
            ):
                return []
            child, above = above, self.parent(above)
        return found

    def _is_training(self, loop: cst.CSTNode) -> bool:
        """Whether the loop goes through a loader, or takes the step or the gradients itself."""
        if isinstance(loop, cst.For) and "loader" in self.code(loop.iter).lower():
            return True
        return isinstance(loop, (cst.For, cst.While)) and any(
            (is_backward(node) or step_call(self.unit, node) is not None)
            and self.enclosing(node, cst.For, cst.While) is loop
            for node in code_below(self.unit, loop.body)
        )

    def _binding(self, node: cst.CSTNode, name: str, loop: cst.CSTNode) -> cst.CSTNode | None:
        """Where the scope binds the name; None where it does not, or where it is put on a device already."""
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        inside = set(map(id, self.unit.below(loop)))
        found: cst.CSTNode | None = None
        for inner in self.unit.below(scope):
            if isinstance(inner, (cst.Global, cst.Nonlocal)) and any(item.name.value == name for item in inner.names):
                return None
            if id(inner) in inside or name not in bound_at(inner):
                continue
            statement = self.parent(inner) if isinstance(inner, cst.AssignTarget) else inner
            if not isinstance(inner, (cst.Param, cst.AssignTarget, cst.AnnAssign)) or statement is None:
                return None
            if _ON_DEVICE.search(self.code(statement)):
                return None
            found = statement
        return found

    def _changes(self, name: str, loop: cst.CSTNode) -> bool:
        """Whether the loop does anything with the tensor but move it and ask for its size."""
        for inner in self.unit.below(loop):
            if not isinstance(inner, cst.Name) or inner.value != name:
                continue
            above = self.parent(inner)
            if isinstance(above, cst.Arg) and above.keyword is inner:
                continue
            if not isinstance(above, cst.Attribute):
                return True
            if above.attr is inner or above.attr.value in _READ:
                continue
            call = self.parent(above)
            if not isinstance(call, cst.Call) or call.func is not above:
                return True
            move = move_of(call)
            if move is None or move.to_cpu:
                return True
        return False

    def _result_changes(self, node: cst.Call, loop: cst.CSTNode) -> bool:
        """Whether the step writes into its copy, so that each step needs a fresh one."""
        above = self.parent(node)
        if isinstance(above, cst.Attribute):
            return above.attr.value.endswith("_")
        if not isinstance(above, cst.Assign):
            return False
        names = {found for target in above.targets for found in bound_at(target)}
        for inner in self.unit.below(loop):
            if isinstance(inner, cst.Attribute) and isinstance(inner.value, cst.Name) and inner.value.value in names:
                if inner.attr.value.endswith("_") or isinstance(self.parent(inner), cst.AssignTarget):
                    return True
            elif isinstance(inner, (cst.AugAssign, cst.AssignTarget)):
                target: cst.BaseExpression | cst.BaseAssignTargetExpression = inner.target
                while isinstance(target, (cst.Subscript, cst.Attribute)):
                    target = target.value
                if isinstance(target, cst.Name) and target.value in names and inner not in above.targets:
                    return True
        return False


def _leaves(statement: cst.CSTNode) -> bool:
    kinds = (cst.Break, cst.Return)
    return isinstance(statement, cst.SimpleStatementLine) and any(isinstance(small, kinds) for small in statement.body)
