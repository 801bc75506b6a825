"""TDL202 pinned-without-non-blocking: the loader pins its batches, and the copy waits all the same."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, step_evidence
from devlint.edits import add_argument, argument, has_unpacking, statement_of
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.data_loader import option
from devlint.semantics.flow.meets import Move
from devlint.semantics.flow.values import Step
from devlint.semantics.tree import dotted

_CONDITION = re.compile(r"is_available\(\)|use_cuda|use_gpu|\bcuda\b|device\.type")


class PinnedWithoutNonBlocking(MeetCheck):
    rules = (
        Rule(
            "TDL202",
            "pinned-without-non-blocking",
            "a batch from a loader with `pin_memory=True` is moved without `non_blocking=True`",
            fix="safe",
        ),
    )
    triggers = (("to", "cuda"), ("for", "next", "iter"))
    patterns = (r"\.\s*(?:to|cuda)\s*\(",)

    def finish(self) -> None:
        """Look at every move of a batch, or of a part of one."""
        if "pin_memory" not in self.file.words:
            return
        self.interpret_callers()
        for move in self.file.placement.world.notes.moves:
            loader = self._pinned_loader(move)
            if loader is not None and self._blocks(move):
                self._report(move, loader)

    def _blocks(self, move: Move) -> bool:
        call, place = move.node, move.result.place
        if place is None or place.kind != "accelerator" or move.discarded or has_unpacking(call):
            return False
        return argument(call, "non_blocking") is None and "mps" not in place.symbol

    def _pinned_loader(self, move: Move) -> Step | None:
        """The call that built the loader which the moved value was drawn from, where it surely pins."""
        if move.value.source != "element":
            return None
        for step in move.value.steps:
            if isinstance(step.node, cst.Call):
                pin = option(step.node, "pin_memory")
                if pin is not None and self._is_on(pin.value, step):
                    return step
        return None

    def _is_on(self, node: cst.BaseExpression, step: Step) -> bool:
        if isinstance(node, cst.Name) and node.value in ("True", "False"):
            return node.value == "True"
        function = step.unit.enclosing(step.node, cst.FunctionDef)
        if isinstance(node, cst.Name) and function is not None:
            for param in (*function.params.params, *function.params.kwonly_params):
                if param.name.value == node.value and isinstance(param.default, cst.Name):
                    return param.default.value == "True"
        return _CONDITION.search(step.unit.code(node)) is not None

    def _report(self, move: Move, loader: Step) -> None:
        unit, call = move.unit, move.node
        if not isinstance(call.func, cst.Attribute):
            return
        receiver = unit.code(call.func.value)
        line = loader.unit.span(loader.node).line
        if move.value.kind == "batch":
            fix = None
        else:
            edit = add_argument(unit, call, "non_blocking=True")
            safe = self._rebound(move, receiver)
            fix = Fix("Add `non_blocking=True`", (edit,), "safe" if safe else "unsafe") if edit else None
        self.accuse(
            "TDL202",
            call,
            unit,
            f"`{receiver}` comes from a loader that pins its batches (line {line}), and this copy waits for the device all "
            "the same; add `non_blocking=True`, or use devlint.runtime.DeviceLoader(loader, device)",
            fix,
            [step_evidence(loader, "the loader that pins is built here")],
        )

    def _rebound(self, move: Move, receiver: str) -> bool:
        """Whether the host tensor's name is given up by the same statement, so that nothing can touch it any more."""
        statement = statement_of(move.unit, move.node)
        if not isinstance(statement, cst.Assign):
            return False
        targets = {dotted(node) for target in statement.targets for node in move.unit.below(target.target)}
        root = re.match(r"\w+", receiver)
        comprehension = move.unit.enclosing(move.node, cst.ListComp, cst.DictComp, cst.GeneratorExp)
        if comprehension is not None and comprehension in move.unit.below(statement):
            source = comprehension.for_in.iter
            return re.sub(r"\.(?:items|values)\(\)$", "", move.unit.code(source)) in targets
        return receiver in targets or (root is not None and root.group() in targets and "[" in receiver)
