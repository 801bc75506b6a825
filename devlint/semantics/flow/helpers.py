"""Functions and methods that the file defines, found from a call and run with its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.evidence import Evidence
from devlint.semantics.flow.interpreter import Run, result_of
from devlint.semantics.flow.meets import Operand
from devlint.semantics.flow.values import HOME, UNKNOWN, Source, Step, Value
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.world import World

_DEPTH = 3


@dataclass(frozen=True)
class Helper:
    """What a call runs: a function or lambda, the class that it is a method of, and the arguments bound before."""

    unit: Unit
    function: cst.FunctionDef | cst.Lambda
    owner: cst.ClassDef | None = None
    receiver: Value | None = None
    nested: bool = False
    bound: dict[str, Value] = field(default_factory=dict)


class Helpers(Evidence):
    """Calls of what the file itself defines."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._results: dict[tuple[object, ...], Value] = {}

    def helper(self, run: Run, node: cst.Call, callee: Value) -> Helper | None:
        """What the file defines for this call; None where it is nothing that can be told."""
        func = node.func
        if callee.kind == "function" and callee.creator is not None:
            made = callee.creator
            if isinstance(made.node, (cst.FunctionDef, cst.Lambda)):
                owner = run.class_node if made.unit is run.unit else None
                bound = {str(key): value for key, value in (callee.items or {}).items()}
                return Helper(made.unit, made.node, owner, nested=True, bound=bound)
        if isinstance(func, cst.Name):
            found = self.function(func.value)
            return Helper(*found) if found is not None else None
        if not isinstance(func, cst.Attribute):
            return None
        receiver, method = dotted(func.value), func.attr.value
        if receiver in ("self", "cls") and run.class_node is not None:
            return self._method(run.unit, run.class_node, method)
        defined = self.class_named(receiver) if receiver and "." not in receiver else None
        return self._method(*defined, method) if defined is not None else None

    def method_of(self, run: Run, base: Value, func: cst.Attribute, node: cst.Call) -> Helper | None:
        """The method that a call on `base` runs: its class's, or that of the one class of the file it can be."""
        method, defined = func.attr.value, base.defined
        if defined is None and base.kind in ("unknown", "module"):
            assigned = run.unit.parent(node)
            target = assigned.targets[0].target if isinstance(assigned, cst.Assign) else None
            parts = len(target.elements) if isinstance(target, cst.Tuple) else 0
            defined = self._only_class_with(method, dotted(func.value).rpartition(".")[2], parts)
        found = self._method(*defined, method) if defined is not None else None
        return replace(found, receiver=base) if found is not None else None

    def _method(self, unit: Unit, owner: cst.ClassDef, name: str, depth: int = 0) -> Helper | None:
        for statement in owner.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value == name:
                return Helper(unit, statement, owner)
        for base in owner.bases:
            defined = self.class_named(dotted(base.value)) if depth < _DEPTH else None
            found = self._method(*defined, name, depth + 1) if defined is not None else None
            if found is not None:
                return replace(found, owner=owner) if found.unit is unit else found
        return None

    def _only_class_with(self, method: str, receiver: str, parts: int) -> tuple[Unit, cst.ClassDef] | None:
        """The class of which a receiver of that name must be, if it is one of this file with that method.

        Either its name is a part of the class's (`sampler`, `UniformSampler`), or the method's has several words, as
        those that many classes share have not, or it returns just as many `parts` as the call is taken apart into.
        """
        holders = [unit for unit in self.file.units if method in unit.words and f"def {method}(" in unit.text]
        if len(holders) != 1 or not holders[0].name:
            return None
        defined = self.class_named(holders[0].name)
        if defined is None:
            return None
        bare = receiver.replace("_", "").lower()
        alike = len(bare) > 2 and bare in defined[1].name.value.lower()
        if alike or "_" in method.strip("_"):
            return defined
        found = self._method(*defined, method)
        returned = found.unit.below(found.function, cst.Return) if found is not None and parts > 1 else []
        fits = all(isinstance(each.value, cst.Tuple) and len(each.value.elements) == parts for each in returned)
        return defined if returned and fits else None

    def run_helper(self, run: Run, helper: Helper, operands: list[Operand], node: cst.Call) -> Value:
        """The result of running `helper` with these arguments."""
        function = helper.function
        if run.depth >= _DEPTH:
            return UNKNOWN
        starred = next((index for index, arg in enumerate(node.args) if arg.star), None)
        if starred is not None:
            # What is unpacked there may be any of the rest.
            operands = [Operand(o.node, o.value if i < starred else UNKNOWN, o.keyword) for i, o in enumerate(operands)]
        if isinstance(function, cst.FunctionDef):
            if api.HOST_FUNCTION.search(function.name.value) or function in self._active:
                return UNKNOWN
        given = self._bind(helper, operands)
        memo = self._memo_key(function, given)
        if not helper.nested and memo in self._results:
            return self._outside(self._results[memo], helper, given)
        owner = helper.owner
        in_module = owner is not None and self.is_module(helper.unit, owner)
        inner = Run(
            self._world(),
            helper.unit,
            class_node=owner,
            in_module=in_module,
            function=function if isinstance(function, cst.FunctionDef) else None,
            depth=run.depth + 1,
        )
        inner.building = run.building and helper.receiver is None
        if helper.nested:
            inner.env = dict(run.env)
        if isinstance(function, cst.Lambda):
            inner.env.update(given)
            return inner.value(function.body)
        inner.parameters(function, given, called=True)
        self._active.append(function)
        goes_on = inner.suite(function.body)
        self._active.pop()
        result = UNKNOWN if goes_on and inner.returned else result_of(inner.returned)
        if helper.unit.below(function, cst.Yield):
            result = UNKNOWN
        self._results[memo] = result
        return self._outside(result, helper, given)

    def _world(self) -> World:
        raise AssertionError("defined by the world")

    def _bind(self, helper: Helper, operands: list[Operand]) -> dict[str, Value]:
        """The arguments by the names of the parameters."""
        params = helper.function.params
        names = [param.name.value for param in (*params.posonly_params, *params.params)]
        if helper.owner is not None and names and names[0] in ("self", "cls"):
            names = names[1:]
        first = [value for key, value in helper.bound.items() if key.isdigit()]
        positional = [*first, *(operand.value for operand in operands if not operand.keyword)]
        given = dict(zip(names, positional, strict=False))
        given |= {key: value for key, value in helper.bound.items() if not key.isdigit()}
        return given | {operand.keyword: operand.value for operand in operands if operand.keyword}

    def _memo_key(self, function: cst.CSTNode, given: dict[str, Value]) -> tuple[object, ...]:
        parts = tuple(sorted((name, value.kind, repr(value.place), value.source) for name, value in given.items()))
        return (function, parts)

    def _outside(self, value: Value, helper: Helper, given: dict[str, Value]) -> Value:
        """A result as the caller sees it: the module's home is where the receiver is, and an unknown argument's
        place is not known outside."""
        if value.items:
            items = {key: self._outside(item, helper, given) for key, item in value.items.items()}
            return replace(value, items=items)
        if value.place is None:
            return value
        if value.place == HOME and helper.receiver is not None:
            place = helper.receiver.place
            return replace(value, place=place) if place is not None else Value(value.kind)
        if value.place.kind == "input" and given.get(value.place.symbol, value).kind == "unknown":
            return Value(value.kind)
        return value


def brought_home(value: Value, step: Step) -> Value:
    """What another file's helper returned, as the calling file may show it: made by the call, its history left behind."""
    items = {key: brought_home(item, step) for key, item in value.items.items()} if value.items else value.items
    if value.kind not in ("tensor", "container", "batch", "device", "host") or (
        value.place is not None and value.place.kind == "home"
    ):
        return UNKNOWN
    source: Source = "numpy" if value.source in ("factory", "numpy") else value.source
    steps = (step,) if value.steps or value.creator else ()
    return replace(value, source=source, steps=steps, creator=None, items=items, defined=None)
