"""TDL101 partial-batch-transfer and TDL104 model-input-not-moved: what of a batch stays behind."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, evidence_of, pairs, step_evidence
from devlint.edits import insert_after, replace, statement_of
from devlint.findings import Edit, Evidence, Fix
from devlint.lazycst import cst
from devlint.semantics.flow.api import HOST_ARGUMENT
from devlint.semantics.flow.evidence import root_of
from devlint.semantics.flow.meets import Meet, Move, Operand
from devlint.semantics.flow.values import Place
from devlint.semantics.guards import on_other_branch
from devlint.semantics.tree import dotted

_TENSOR_NAME = re.compile(r"mask|ids|label|target|input|image|img|pixel|token|feat|^[xy]$|emb|noise", re.I)


class PartialBatchTransfer(MeetCheck):
    rules = (
        Rule(
            "TDL101",
            "partial-batch-transfer",
            "one element of a batch is moved to the device, another reaches the loss or model on the CPU",
            fix="unsafe",
        ),
        Rule(
            "TDL104",
            "model-input-not-moved",
            "a model is moved to a device, and its input is not",
            fix="unsafe",
        ),
    )
    triggers = (("to", "cuda"), ("for", "torch", "self", "cat"))
    patterns = (r"\.\s*(?:to|cuda)\s*\(",)

    def judge(self, meet: Meet) -> None:
        for left, other in pairs(meet):
            if left.value.source != "element" or other.value.place is None:
                continue
            if other.value.place.kind != "accelerator":
                continue
            if meet.kind == "index" and meet.operands[0] is not left:
                # A tensor on a device may be indexed from the CPU.
                continue
            if meet.kind == "module" and not self._surely_a_tensor(left, meet):
                continue
            if self._handed_to_helper(left, meet) or (
                meet.kind == "module" and "DataParallel" in self.file.source.text
            ):
                # DataParallel scatters what it is given over its devices.
                continue
            if not self._elsewhere_only(left, meet):
                self._report(meet, left, other)
            return
        self._judge_stale(meet)

    def _surely_a_tensor(self, left: Operand, meet: Meet) -> bool:
        """Whether an argument of a model is one that has to be on its device: lengths and paths need not."""
        name = left.keyword or left.value.name or self._text(meet, left.node)
        last = re.sub(r"[\W_]*$", "", name)
        if HOST_ARGUMENT.search(last) and not _TENSOR_NAME.search(last):
            return False
        first = isinstance(meet.node, cst.Call) and bool(meet.node.args) and meet.node.args[0].value is left.node
        return first or _TENSOR_NAME.search(last) is not None

    def _elsewhere_only(self, left: Operand, meet: Meet) -> bool:
        """Whether the batch is moved on another branch only: this one may be for models that stay on the CPU."""
        root = root_of(left.node)
        return any(
            move.unit is meet.unit and on_other_branch(meet.unit, move.node, meet.node)
            for move in self.file.placement.world.notes.moves
            if isinstance(move.node.func, cst.Attribute) and root_of(move.node.func.value) == root
        )

    def _handed_to_helper(self, left: Operand, meet: Meet) -> bool:
        """Whether a call whose result nobody keeps got the whole element before: it may move what is in it, in place."""
        name = root_of(left.node)
        around = meet.unit.enclosing(meet.node, cst.For) or meet.unit.enclosing(meet.node, cst.FunctionDef)
        return around is not None and any(
            isinstance(node, cst.Expr)
            and isinstance(node.value, cst.Call)
            and dotted(node.value.func) != "print"
            and any(isinstance(arg.value, cst.Name) and arg.value.value == name for arg in node.value.args)
            and meet.unit.span(node) < meet.unit.span(meet.node)
            for node in meet.unit.below(around)
        )

    def _text(self, meet: Meet, node: cst.CSTNode) -> str:
        return meet.unit.code(node)

    def _report(self, meet: Meet, left: Operand, other: Operand) -> None:
        unit = meet.unit
        name = left.value.name or self._text(meet, left.node)
        sibling = self._sibling(meet)
        alone = meet.kind == "module" and sibling is None
        code = "TDL104" if alone else "TDL101"
        place = other.value.place
        evidence = [step_evidence(step, f"`{name}` is drawn from the loader here") for step in left.value.steps[-1:]]
        if sibling is not None:
            moved = self._text(meet, sibling.node.func.value) if isinstance(sibling.node.func, cst.Attribute) else ""
            line = sibling.unit.span(sibling.node).line
            evidence.append(evidence_of(sibling.unit, sibling.node, f"`{moved}` is moved here"))
            message = (
                f"batch element `{name}` stays on the CPU while `{moved}` was moved at line {line}; move it too, or move "
                "the batch: devlint.runtime.to_device(batch, device)"
            )
        else:
            evidence += [
                step_evidence(step, f"moved to `{place.symbol if place else ''}` here")
                for step in other.value.steps[-1:]
            ]
            message = (
                f"`{name}` comes from the loader on the CPU and meets what is on `{place.symbol if place else ''}`; move it, "
                "or move the batch: devlint.runtime.to_device(batch, device)"
            )
        self.accuse(code, left.node, unit, message, self._fix(meet, left, sibling, place), evidence)

    def _sibling(self, meet: Meet) -> Move | None:
        """The last move, before the meeting, of another element in the same loop, or function that gets a batch."""
        loop = meet.unit.enclosing(meet.node, cst.For)
        function = meet.unit.enclosing(meet.node, cst.FunctionDef)
        moves = [
            move
            for move in self.file.placement.world.notes.moves
            if move.unit is meet.unit
            and move.value.source == "element"
            and move.loop is loop
            and move.unit.enclosing(move.node, cst.FunctionDef) is function
            and not on_other_branch(meet.unit, move.node, meet.node)
            and move.result.place is not None
            and move.result.place.kind == "accelerator"
        ]
        before = [m for m in moves if m.unit.span(m.node) < meet.unit.span(meet.node)]
        inside = [m for m in moves if m not in before]
        return before[-1] if before else (inside[0] if inside else None)

    def _fix(self, meet: Meet, left: Operand, sibling: Move | None, place: Place | None) -> Fix | None:
        unit = meet.unit
        suffix = ""
        if sibling is not None and isinstance(sibling.node.func, cst.Attribute):
            attribute = sibling.node.func.attr
            suffix = "." + unit.source.text[unit.offsets(attribute)[0] : unit.offsets(sibling.node)[1]]
        elif place is not None and place.symbol:
            suffix = f".{place.symbol}()" if place.symbol in ("cuda", "xpu") else f".to({place.symbol})"
        if not suffix or "\n" in suffix:
            return None
        if self.file.settings.fix_style == "runtime":
            return self._runtime_fix(meet, left, place)
        step = left.value.steps[-1] if left.value.steps else None
        if step is not None and step.unit is unit and isinstance(step.node, (cst.Subscript, cst.Attribute)):
            at = unit.offsets(step.node)[1]
            return Fix(f"Move it: `{suffix}`", (Edit(at, at, suffix),), "unsafe")
        if sibling is not None and isinstance(left.node, cst.Name) and unit.span(sibling.node) < unit.span(meet.node):
            statement = statement_of(unit, sibling.node)
            if statement is not None and statement is not statement_of(unit, meet.node):
                name = left.node.value
                edit = insert_after(unit, statement, f"{name} = {name}{suffix}")
                return Fix(f"Move `{name}`, too", (edit,), "unsafe") if edit else None
        if isinstance(left.node, (cst.Name, cst.Subscript, cst.Attribute, cst.Call)):
            at = unit.offsets(left.node)[1]
            return Fix(f"Move it: `{suffix}`", (Edit(at, at, suffix),), "unsafe")
        return None

    def _runtime_fix(self, meet: Meet, left: Operand, place: Place | None) -> Fix | None:
        """The same by `devlint.runtime.to_device`, at the place where the element is used."""
        unit = meet.unit
        if place is None or not place.symbol or not isinstance(left.node, (cst.Name, cst.Subscript, cst.Attribute)):
            return None
        symbol = f'"{place.symbol}"' if place.symbol in ("cuda", "xpu", "mps") else place.symbol
        spelled, _ = self.file.names.spell("devlint.runtime.to_device")
        known = spelled != "devlint.runtime.to_device"
        call = f"{spelled if known else 'to_device'}({unit.code(left.node)}, {symbol})"
        needs = () if known else ("devlint.runtime:to_device",)
        return Fix(f"Move it: `{call}`", (replace(unit, left.node, call),), "unsafe", needs)

    def _judge_stale(self, meet: Meet) -> None:
        """A name that still holds what a parameter was before it was moved."""
        for left in meet.operands:
            place = left.value.place
            if place is None or place.kind != "input" or left.value.source != "parameter":
                continue
            moves = [
                move
                for move in self.file.placement.world.notes.moves
                if move.value.ident is left.value.ident and move.unit is meet.unit and move.result.place is not None
            ]
            others = [o for o in meet.operands if o.value.place is not None and o.value.place.kind == "accelerator"]
            if not others or not moves:
                continue
            name = meet.unit.code(left.node) if isinstance(left.node, cst.Name) else place.symbol
            line = moves[-1].unit.span(moves[-1].node).line
            symbol = moves[-1].result.place.symbol if moves[-1].result.place else "the device"
            evidence: list[Evidence] = [evidence_of(moves[-1].unit, moves[-1].node, f"`{place.symbol}` is moved here")]
            self.accuse(
                "TDL101",
                left.node,
                meet.unit,
                f"`{name}` still holds `{place.symbol}` as it was before line {line} moved it to `{symbol}`, and meets what "
                "is there; take it after the move",
                None,
                evidence,
            )
            return
