"""TDL107 numpy-on-device-tensor and TDL108 lengths-not-on-cpu: what only a CPU tensor can be given to."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, step_evidence
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import MOVE_CALL
from devlint.semantics.flow.api import ARRAY_LIBRARIES
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.imports import Names
from devlint.units import Unit


class HostSinks(MeetCheck):
    rules = (
        Rule("TDL107", "numpy-on-device-tensor", "NumPy is handed a tensor that is on a device", fix="safe"),
        Rule(
            "TDL108",
            "lengths-not-on-cpu",
            "`pack_padded_sequence` is given lengths that are on a device",
            fix="safe",
        ),
    )
    # What is handed to `.numpy()` may have been moved by a function that is called.
    patterns = (rf"{MOVE_CALL}|pack_padded_sequence|\.numpy\(",)

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit calls `.numpy()`, something of a library that makes arrays, or `pack_padded_sequence`."""
        sinks = {
            local
            for local, targets in names.aliases.items()
            if any((target + ".").startswith(ARRAY_LIBRARIES) for target in targets)
        }
        sinks |= {"numpy", "pack_padded_sequence"}
        return not unit.words.isdisjoint(sinks) and super().wants(unit, names)

    def judge(self, meet: Meet) -> None:
        operand = meet.operands[0]
        place = operand.value.place
        if place is None:
            return
        if meet.kind == "numpy" and place.kind == "accelerator":
            self._report("TDL107", meet, operand, "NumPy cannot read it there; copy it first: `.cpu()`")
        elif meet.kind == "lengths" and place.kind != "cpu":
            name = operand.value.name if isinstance(operand.node, cst.Name) else ""
            computed = meet.in_forward and name != place.symbol and not re.search(r"len|size|num", place.symbol, re.I)
            if place.kind == "accelerator" or (
                place.kind == "input" and (computed or self._moved_by_caller(place.symbol))
            ):
                self._report(
                    "TDL108", meet, operand, "the lengths must be on the CPU: `.cpu()`, which costs nothing there"
                )

    def _moved_by_caller(self, parameter: str) -> bool:
        """Whether the file moves, to a device, what goes by the parameter's name."""
        pattern = rf"^[^#\n]*\b{re.escape(parameter)}\b[^=\n]*=(?!=)[^\n]*\.(?:to|cuda)\("
        return re.search(pattern, self.file.source.text, re.M) is not None

    def _report(self, code: str, meet: Meet, operand: Operand, advice: str) -> None:
        name = meet.unit.code(operand.node)
        where = describe(operand.value.place)
        evidence = [step_evidence(step, "it is moved here") for step in operand.value.steps[-1:]]
        self.accuse(code, operand.node, meet.unit, f"`{name}` is {where}; {advice}", self._fix(meet, operand), evidence)

    def _fix(self, meet: Meet, operand: Operand) -> Fix | None:
        node = operand.node
        if operand.value.kind != "tensor" or not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)):
            return None
        if operand.keyword == "items" or node.lpar:
            return None
        at = meet.unit.offsets(node)[1]
        return Fix("Insert `.cpu()`", (Edit(at, at, ".cpu()"),), "safe")
