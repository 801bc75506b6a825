"""TDL103 device-mismatch-op, TDL105 cuda-index-into-cpu-tensor, TDL114 criterion-weight-on-cpu: two places, one op."""

from __future__ import annotations

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, evidence_of, pairs, step_evidence
from devlint.checks.mixing import by_default, holds_nothing, is_item, takes_parameters
from devlint.edits import add_argument, argument
from devlint.findings import Evidence, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import MOVE_CALL
from devlint.semantics.flow.meets import Meet, Operand

_SOURCES = ("factory", "numpy", "moved", "assumed", "held")
_ADVICE = "create it there: `device={}`"


class DeviceMismatch(MeetCheck):
    rules = (
        Rule(
            "TDL103",
            "device-mismatch-op",
            "the operands of an operation are on different devices",
            fix="unsafe",
        ),
        Rule(
            "TDL105",
            "cuda-index-into-cpu-tensor",
            "a tensor on the CPU is indexed by one on a device",
            fix="unsafe",
        ),
        Rule("TDL114", "criterion-weight-on-cpu", "the class weights of a loss stay on the CPU", fix="unsafe"),
    )
    triggers = (("to", "cuda", "device"),)
    patterns = (MOVE_CALL,)

    def judge(self, meet: Meet) -> None:
        for left, other in pairs(meet):
            place = other.value.place
            if place is None or place.kind != "accelerator" or left.value.source not in _SOURCES:
                continue
            if by_default(self.file, meet, other) or is_item(self.file, left):
                continue
            if left.value.kind == "module":
                if not takes_parameters(left.value):
                    self._report_module(meet, left, other)
                continue
            if other.value.kind == "module" and holds_nothing(self.file, other.value):
                continue
            if meet.kind == "module" and other.value.kind != "module":
                # What a model does with its arguments is not seen here: some it may well want on the CPU.
                continue
            if meet.kind == "index" and meet.operands[0] is not left:
                continue
            weight = left.value.kind == "loss"
            code = "TDL114" if weight else "TDL105" if meet.kind == "index" else "TDL103"
            self._report(code, meet, left, other)
            return

    def _report_module(self, meet: Meet, module: Operand, other: Operand) -> None:
        name = meet.unit.code(module.node)
        place = other.value.place
        symbol = place.symbol if place else "the device"
        evidence = [step_evidence(step, f"`{name}` is built on the CPU here") for step in module.value.steps[-1:]]
        evidence += [step_evidence(step, "the input is moved here") for step in other.value.steps[-1:]]
        self.accuse(
            "TDL103",
            meet.node,
            meet.unit,
            f"`{name}` is still on the CPU while its input is on `{symbol}`; move the module, too: "
            f"`{name}.to({symbol})`",
            None,
            evidence,
        )

    def _report(self, code: str, meet: Meet, left: Operand, other: Operand) -> None:
        unit, place = meet.unit, other.value.place
        symbol = place.symbol if place else "the device"
        name = unit.code(left.node) if isinstance(left.node, (cst.Name, cst.Attribute)) else "this tensor"
        evidence: list[Evidence] = []
        creator = left.value.creator
        for step in left.value.steps[-1:]:
            evidence.append(step_evidence(step, "the tensor on the CPU comes from here"))
        for step in other.value.steps[-1:]:
            evidence.append(step_evidence(step, f"the other is put {describe(place)} here"))
        if not evidence:
            evidence.append(evidence_of(unit, other.node, f"this is {describe(place)}"))
        what = {
            "TDL103": f"`{name}` is on the CPU and meets what is {describe(place)}",
            "TDL105": f"`{name}` is on the CPU and is indexed by a tensor {describe(place)}",
            "TDL114": f"the weight of `{name}` is on the CPU and meets what is {describe(place)}",
        }[code].replace("`this tensor`", "this tensor")
        target = left.node
        fix = self._fix(left, symbol, meet)
        advice = _ADVICE.format(symbol) if creator is not None else f"move it: `.to({symbol})`"
        self.accuse(code, target, unit, f"{what}; {advice}", fix, evidence)

    def _fix(self, left: Operand, symbol: str, meet: Meet) -> Fix | None:
        creator = left.value.creator
        if creator is None or creator.unit is not meet.unit or not isinstance(creator.node, cst.Call):
            return None
        made_in, met_in = (creator.unit.enclosing(node, cst.FunctionDef) for node in (creator.node, meet.node))
        if made_in is not met_in and not (symbol.startswith('"') or symbol in ("cuda", "xpu", "mps")):
            # The name of the device may mean nothing where the tensor is made.
            return None
        symbol = f'"{symbol}"' if symbol in ("cuda", "xpu", "mps") else symbol
        if argument(creator.node, "device") is not None:
            return None
        edit = add_argument(creator.unit, creator.node, f"device={symbol}")
        return Fix(f"Create it with `device={symbol}`", (edit,), "unsafe") if edit else None
