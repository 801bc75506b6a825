"""What the rules share that read meetings of values: who is to blame, and how a device is spelled at a place."""

from __future__ import annotations

from collections.abc import Iterator

from devlint.checks.base import Check, File
from devlint.findings import Evidence, Finding, Fix
from devlint.lazycst import cst
from devlint.semantics.flow.meets import Meet, Operand
from devlint.semantics.flow.values import Place, Step, mixes
from devlint.units import Unit, UnitTooDeep


class MeetCheck(Check):
    """A check that is told of each meeting of values that must share a device and surely do not."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._units: set[str] = set()
        self._told: set[tuple[str, cst.CSTNode]] = set()

    def finish_unit(self) -> None:
        """Run the interpreter over the unit, and pass on what it noted."""
        self.file.placement.world.interpret(self.unit)
        self._units.add(self.unit.name)

    def interpret_callers(self) -> None:
        """Run the units that mention one that was walked, or another file of the project: what they hand over, or are
        given back, proves more."""
        world = self.file.placement.world
        wanted = self._units - {""} | world.imported
        if "" in self._units:
            wanted |= self.file.names.bound
        for unit in self.file.units:
            if unit.name not in self._units and not unit.words.isdisjoint(wanted):
                try:
                    world.interpret(unit)
                except UnitTooDeep:
                    continue

    def finish(self) -> None:
        """Judge every meeting of the file once."""
        self.interpret_callers()
        for meet in self.file.placement.world.notes.meets:
            self.judge(meet)

    def judge(self, meet: Meet) -> None:
        """Report what is wrong with a meeting, if it is this check's."""

    def accuse(
        self, code: str, node: cst.CSTNode, unit: Unit, message: str, fix: Fix | None, evidence: list[Evidence]
    ) -> None:
        """Report at `node` of `unit`, each node once for each code."""
        if (code, node) in self._told or code not in self.file.settings.enabled:
            return
        self._told.add((code, node))
        rule = next(rule for rule in self.rules if rule.code == code)
        path = self.file.source.path
        self.findings.append(Finding(code, rule.name, message, unit.span(node), tuple(evidence), fix, "", path))


def pairs(meet: Meet) -> Iterator[tuple[Operand, Operand]]:
    """Each operand that is surely on the CPU, with one that it cannot meet there.

    A loss of four arguments is a CTC loss, which takes the lengths behind the first two wherever they are.
    """
    call = meet.node if meet.kind == "loss" and isinstance(meet.node, cst.Call) else None
    given = [arg.value for arg in call.args] if call is not None else []
    lengths = given[2:] if len(given) == 4 else []
    for one in meet.operands:
        if one.node in lengths:
            continue
        for other in meet.operands:
            if one.value.place is not None and one.value.place.kind == "cpu" and not mixes(one.value, other.value):
                yield one, other


def evidence_of(unit: Unit, node: cst.CSTNode, text: str) -> Evidence:
    """One step of a proof, cut to the first line of the node."""
    span = unit.span(node)
    if span.end_line != span.line:
        end = len(unit.source.line(span.line))
        span = type(span)(span.line, span.column, span.line, max(end, span.column + 1))
    return Evidence(text, span)


def step_evidence(step: Step, text: str) -> Evidence:
    """The evidence of a step of a value's history."""
    return evidence_of(step.unit, step.node, text)


def describe(place: Place | None) -> str:
    """A place in words."""
    if place is None:
        return "elsewhere"
    if place.kind in ("cpu", "cpu0"):
        return "on the CPU"
    if place.kind == "input":
        return f"where the caller put `{place.symbol}`"
    if place.kind == "home":
        return "where the module is"
    return f"on `{place.symbol}`"


def parameters_of(function: cst.FunctionDef) -> list[str]:
    """The names of a function's parameters."""
    params = function.params
    return [param.name.value for param in (*params.posonly_params, *params.params, *params.kwonly_params)]
