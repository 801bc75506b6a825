"""TDL103 device-mismatch-op, TDL105 cuda-index-into-cpu-tensor, TDL114 criterion-weight-on-cpu: two places, one op."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, evidence_of, pairs, parameters_of, step_evidence
from devlint.edits import add_argument, argument
from devlint.findings import Evidence, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import MOVE_CALL
from devlint.semantics.flow.api import CONTAINERS, PARAMETRIC
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Value
from devlint.semantics.tree import dotted

_SOURCES = ("factory", "numpy", "moved", "held")
# A layer that `__init__` hands to a helper with one of another module's may take the parameters of that one.
_REWORKED = re.compile(r"^\s+\w+\(self\.\w+,\s*(?!self\b)\w+\.\w+\)", re.M)
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
            if self._by_default(meet, other) or self._is_item(left):
                continue
            if left.value.kind == "module":
                if left.value.defined is None or not _REWORKED.search(left.value.defined[0].text):
                    self._report_module(meet, left, other)
                continue
            if other.value.kind == "module" and self._holds_nothing(other.value):
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

    def _is_item(self, operand: Operand) -> bool:
        """Whether it was made of an item of a range that a loop goes through: it has no dimension, and mixes with everything."""
        made = operand.value.creator or (operand.value.steps[0] if operand.value.steps else None)
        loop = made.unit.parents.get(made.node) if made is not None else None
        ranges = ("torch.arange", "torch.linspace", "torch.logspace", "torch.randperm", "torch.range")
        return (
            made is not None
            and isinstance(loop, cst.For)
            and isinstance(made.node, cst.Call)
            and loop.iter is made.node
            and self.file.names.qualified(made.node.func, made.unit) in ranges
        )

    def _by_default(self, meet: Meet, other: Operand) -> bool:
        """Whether a helper put the other operand on its parameter `device=None`, which the file leaves out somewhere: None
        is the CPU."""
        step = other.value.steps[-1] if other.value.steps else None
        helper = step.unit.enclosing(step.node, cst.FunctionDef) if step is not None else None
        place = other.value.place
        if helper is None or place is None or meet.unit.enclosing(meet.node, cst.FunctionDef) is helper:
            return False
        names = parameters_of(helper)
        param = next((p for p in helper.params.params if p.name.value == place.symbol), None)
        if param is None or not isinstance(param.default, cst.Name) or param.default.value != "None":
            return False
        index, name = names.index(place.symbol), helper.name.value
        return any(
            argument(call, place.symbol) is None and sum(arg.keyword is None for arg in call.args) <= index
            for unit in self.file.units
            if name in unit.words
            for call in unit.below(unit.module, cst.Call)
            if dotted(call.func).rpartition(".")[2] == name
        )

    def _holds_nothing(self, module: Value) -> bool:
        """Whether a module of torch has no parameters, such as a CTCLoss: it is nowhere, and takes its inputs anywhere."""
        made = module.steps[0] if module.steps else None
        if made is None or not isinstance(made.node, cst.Call):
            return False
        name = self.file.names.qualified(made.node.func, made.unit)
        return name.startswith("torch.nn.") and name not in PARAMETRIC and name not in CONTAINERS

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
