"""TDL106 factory-without-device-in-forward and TDL130 factory-ignores-input-device."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, evidence_of, pairs, parameters_of, step_evidence
from devlint.edits import add_argument, argument, remove_argument
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORY_CALL
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Step

_INITIAL = re.compile(r"^_*(?:reset_parameters|init(?:iali[sz]e)?_(?:weights?|parameters?|params?)|_?init_weights?)$")


class FactoryDevice(MeetCheck):
    rules = (
        Rule(
            "TDL106",
            "factory-without-device-in-forward",
            "a tensor is created on the CPU in `forward` and meets activations",
            fix="safe",
        ),
        Rule(
            "TDL130",
            "factory-ignores-input-device",
            "a tensor is created on the CPU and meets one that came in as a parameter",
            fix="safe",
        ),
    )
    patterns = (FACTORY_CALL,)

    def judge(self, meet: Meet) -> None:
        for left, other in pairs(meet):
            place = other.value.place
            if place is None or place.kind not in ("input", "home"):
                continue
            if left.value.source == "constant" and meet.in_forward and meet.kind != "module":
                self._report_constant(meet, left, other)
            if left.value.source not in ("factory", "numpy"):
                continue
            # What is made by a legacy constructor, or of an array, takes no `device=`, and is moved behind it.
            creator = left.value.creator or (left.value.steps[0] if left.value.source == "numpy" else None)
            if creator is None or not isinstance(creator.node, cst.Call):
                continue
            if meet.kind == "module" and other.value.kind != "module":
                # What a module does with its arguments is not seen here: some it may well want on the CPU.
                continue
            if meet.kind == "index" and meet.operands[0] is not left:
                # A tensor on a device takes an index on the CPU; only the copy is lost.
                continue
            if not meet.in_forward and not left.value.inputs and meet.kind != "index":
                continue
            if place.kind == "home" and self._made_at_home(creator):
                continue
            if place.kind == "input" and (self._in_test(creator) or self._in_collator(creator)):
                continue
            self._report(meet, left, other, creator)

    def _made_at_home(self, creator: Step) -> bool:
        """Whether the tensor is made where the module still is on the CPU, while it is built, or outside of classes by code
        that runs `forward` itself."""
        around = creator.unit.enclosing(creator.node, cst.FunctionDef)
        if creator.unit.enclosing(creator.node, cst.ClassDef) is not None:
            return around is not None and _INITIAL.search(around.name.value) is not None
        return around is None or ".forward(" in creator.unit.code(around)

    def _in_test(self, creator: Step) -> bool:
        """Whether a test makes the tensor: what pytest hands to its parameters is made beside it, on the CPU."""
        around = creator.unit.enclosing(creator.node, cst.FunctionDef)
        while around is not None and not around.name.value.startswith("test_"):
            around = creator.unit.enclosing(around, cst.FunctionDef)
        return around is not None and creator.unit.enclosing(around, cst.ClassDef) is None

    def _in_collator(self, creator: Step) -> bool:
        """Whether a class that makes batches makes the tensor: it runs in the loader's workers, on the CPU."""
        owner = creator.unit.enclosing(creator.node, cst.ClassDef)
        return owner is not None and "collat" in owner.name.value.lower()

    def _report_constant(self, meet: Meet, left: Operand, other: Operand) -> None:
        name = meet.unit.code(left.node)
        evidence = [step_evidence(step, "it is created here, on the CPU") for step in left.value.steps[-1:]]
        self.accuse(
            "TDL106",
            left.node,
            meet.unit,
            f"`{name}` is created on the CPU, at module level, and meets what is {describe(other.value.place)}; make it a buffer of "
            "the module, or move it where it is used",
            None,
            evidence,
        )

    def _report(self, meet: Meet, left: Operand, other: Operand, creator: Step) -> None:
        assert isinstance(creator.node, cst.Call)
        unit = creator.unit
        given = argument(creator.node, "device")
        like = creator.text == "like"
        function = unit.enclosing(creator.node, cst.FunctionDef)
        source = self._source(left, other, function, creator)
        made = unit.code(creator.node.func)
        code = "TDL106" if meet.in_forward and given is None else "TDL130"
        meeting = meet.unit.span(meet.node).line
        place = describe(other.value.place)
        if like:
            advice = "drop the argument, and it is created there"
            message = f"`{made}(…)` is sent to the CPU, and meets at line {meeting} what is {place}; {advice}"
        elif left.value.source == "numpy":
            hint = f"`.to({source}.device)`" if source else "`.to(…)`"
            message = f"`{made}(…)` is created on the CPU, and meets at line {meeting} what is {place}; move it: {hint}"
        else:
            hint = f"`device={source}.device`" if source else "the device of what it meets"
            message = (
                f"`{made}(…)` is created on the CPU, and meets at line {meeting} what is {place}; create it with {hint}"
            )
        evidence = [evidence_of(meet.unit, meet.node, f"here it meets what is {place}")]
        self.accuse(code, creator.node, unit, message, self._fix(creator, source, left), evidence)

    def _source(self, left: Operand, other: Operand, function: cst.FunctionDef | None, creator: Step) -> str:
        """A name in the creator's function whose device is the right one: a tensor that its shape came from, or what it
        meets; for what meets the module itself, the first tensor that comes in."""
        if function is None:
            return ""
        names = parameters_of(function)
        place = other.value.place
        for name in sorted(left.value.inputs):
            if name in names:
                return name
        if place is not None and place.kind == "input" and place.symbol in names:
            return place.symbol
        if place is not None and place.kind == "home" and function.name.value == "forward":
            facts = self.file.placement.world.parameter_facts(creator.unit, function, True)
            return next((name for name in names if name in facts), "")
        return ""

    def _fix(self, creator: Step, source: str, left: Operand) -> Fix | None:
        assert isinstance(creator.node, cst.Call)
        given = argument(creator.node, "device")
        if left.value.source == "numpy":
            if not source or creator.node.lpar:
                return None
            end = creator.unit.offsets(creator.node)[1]
            return Fix(f"Move it: `.to({source}.device)`", (Edit(end, end, f".to({source}.device)"),), "safe")
        if given is not None:
            if creator.text != "like":
                return None
            edit = remove_argument(creator.unit, creator.node, given)
            return Fix("Drop the device argument", (edit,), "safe") if edit else None
        if not source:
            return None
        edit = add_argument(creator.unit, creator.node, f"device={source}.device")
        return Fix(f"Create it with `device={source}.device`", (edit,), "safe") if edit else None
