"""TDL401 missing-zero-grad: gradients pile up from step to step."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import insert_after, insert_before, statement_of
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.training import StepCall, code_below, is_backward, method_call, step_call
from devlint.semantics.tree import dotted

# What resets gradients, or takes them otherwise than from `.grad`.
_RESETS = re.compile(
    r"zero_grad|\.grad\s*=\s*None|grad(?:\.data)?\.(?:zero_|fill_|detach_)\(|autograd\.grad\(|set_to_none"
)


class MissingZeroGrad(Check):
    rules = (
        Rule(
            "TDL401",
            "missing-zero-grad",
            "a training loop that never resets the gradients, so that they pile up",
            fix="unsafe",
        ),
    )
    triggers = (("backward",), ("step",), ("for", "while"))

    def visit_For(self, node: cst.For) -> None:
        self._loop(node)

    def visit_While(self, node: cst.While) -> None:
        self._loop(node)

    def _loop(self, loop: cst.For | cst.While) -> None:
        nodes = list(code_below(self.unit, loop.body))
        backward = next((node for node in nodes if is_backward(node)), None)
        steps = [step for step in (step_call(self.unit, node) for node in nodes) if step is not None]
        if backward is None or not steps or not self._innermost(loop, nodes) or self._uses_a_framework():
            return
        step: StepCall | None = steps[0]
        where = "no `zero_grad` in this loop"
        if _RESETS.search(self.unit.module.code_for_node(loop.body)):
            step = self._left_out(nodes, steps)
            where = "no `zero_grad` of this optimizer on this way through the loop"
        if step is None or any(self._may_reset(node, step) for node in nodes):
            return
        at = self.unit.index_of(step.node)
        before = [node for node in nodes if is_backward(node) and self.unit.index_of(node) < at]
        backward = before[-1] if before else backward
        evidence = [(backward, "the gradients are added up here")]
        self.report(
            step.node,
            "TDL401",
            f"{where}: every `backward()` adds to the gradients of all steps before; call "
            f"`{step.optimizer}.zero_grad()` once a step, or let devlint.runtime.TrainStep do the whole of it",
            fix=self._fix(backward, step),
            evidence=evidence,
        )

    def _left_out(self, nodes: list[cst.CSTNode], steps: list[StepCall]) -> StepCall | None:
        """The step whose gradients nobody resets, in a loop that resets others: of another optimizer, or in another branch."""
        resets = [node for node in nodes if isinstance(node, cst.Call) and method_call(node, "zero_grad")]
        names = {dotted(node.func.value) for node in resets if isinstance(node.func, cst.Attribute)}
        code = self.unit.module.code_for_node
        text = " ".join(code(node) for node in nodes if isinstance(node, cst.SimpleStatementLine))
        if not resets or len(_RESETS.findall(text)) > len(re.findall(r"zero_grad\(", text)):
            return None
        if names <= {step.optimizer for step in steps} and "" not in names:
            # Each of these clears its own parameters; what no one of them steps is not cleared.
            other = next((step for step in steps if step.optimizer not in names), None)
            if other is not None and "[" not in other.optimizer:
                return other
        for step in steps:
            choice = self.enclosing(step.node, cst.If)
            if choice is None or not isinstance(choice.orelse, cst.Else):
                continue
            one, two = self.unit.below(choice.body), self.unit.below(choice.orelse)
            mine, others = (one, two) if step.node in one else (two, one)
            if any(map(is_backward, mine)) and all(reset in others for reset in resets):
                return step
        return None

    def _innermost(self, loop: cst.CSTNode, nodes: list[cst.CSTNode]) -> bool:
        """Whether no loop inside holds both a backward pass and a step."""
        for node in nodes:
            if isinstance(node, (cst.For, cst.While)) and node is not loop:
                inner = list(code_below(self.unit, node.body))
                if any(map(is_backward, inner)) and any(step_call(self.unit, part) for part in inner):
                    return False
        return True

    def _uses_a_framework(self) -> bool:
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        return not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"})

    def _may_reset(self, node: cst.CSTNode, step: StepCall) -> bool:
        """Whether a call in the loop hands the optimizer or the model on, or runs code of this file that resets."""
        if not isinstance(node, cst.Call) or node is step.node:
            return False
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if last in ("step", "update", "unscale_", "print", "len", "isinstance"):
            return False
        if any(self.code(arg.value) == step.optimizer for arg in node.args):
            return True
        for unit in self.file.units:
            if (
                last
                and re.search(rf"def {re.escape(last)}\b", unit.text)
                and _RESETS.search(self._body(unit.text, last))
            ):
                return True
        return False

    def _body(self, text: str, function: str) -> str:
        """The text of a function, up to the next definition at its own indentation."""
        match = re.search(
            rf"^([ \t]*)(?:async )?def {re.escape(function)}\b.*?(?=^\1(?:def|class|@|\S)|\Z)", text, re.M | re.S
        )
        return match.group() if match else text

    def _fix(self, backward: cst.CSTNode, step: StepCall) -> Fix | None:
        text = f"{step.optimizer}.zero_grad()"
        if not re.fullmatch(r"[\w.]+", step.optimizer):
            return None
        stepping, passing = statement_of(self.unit, step.node), statement_of(self.unit, backward)
        if stepping is None or passing is None:
            return None
        guarded = self.unit.parents.get(self.unit.parents.get(stepping, stepping)) is not self.unit.parents.get(
            self.unit.parents.get(passing, passing)
        )
        edit = insert_after(self.unit, stepping, text) if guarded else insert_before(self.unit, passing, text)
        return Fix(f"Call `{text}`", (edit,), "unsafe") if edit else None
