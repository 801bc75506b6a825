"""Loops over the batches of a DataLoader: which loaders each reads, whether it trains, and what runs it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.data_loader import DATA_LOADER
from devlint.semantics.flow.api import WRAPPERS
from devlint.semantics.origins import Origin, Origins
from devlint.semantics.training import code_below, is_backward
from devlint.semantics.tree import dotted
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File

_HOPS = 3


@dataclass(frozen=True)
class LoaderCall:
    """A call that makes a DataLoader, and the unit that it stands in."""

    node: cst.Call
    unit: Unit


@dataclass(frozen=True)
class BatchLoop:
    """A `for` loop over a loader; `read` is the loader as the loop names it, `loaders` the calls that may have made it."""

    node: cst.For
    unit: Unit
    read: cst.BaseExpression
    loaders: tuple[LoaderCall, ...]


class BatchLoops:
    """The loops of one file that surely run over the batches of a DataLoader made in it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.origins = Origins(file)

    @cached_property
    def loops(self) -> list[BatchLoop]:
        """Every such loop, in order."""
        return list(self._find())

    def _find(self) -> Iterator[BatchLoop]:
        for unit in self._units():
            for node in unit.nodes:
                if isinstance(node, cst.For):
                    for read in iterated(node.iter):
                        loaders = self.loaders(read, unit)
                        if loaders:
                            yield BatchLoop(node, unit, read, loaders)

    def _units(self) -> Iterator[Unit]:
        for unit in self._file.units:
            if "for" in unit.words:
                try:
                    _ = unit.module
                except UnitTooDeep:
                    continue
                yield unit

    def loaders(self, node: cst.BaseExpression, unit: Unit, depth: int = 0) -> tuple[LoaderCall, ...]:
        """The DataLoader calls that `node` may stand for; none where one of its values is anything else but None."""
        if isinstance(node, cst.Subscript):
            held = [value for origin in self.origins.of(node.value, unit) for value in _values(origin, node)]
            made = [self.loaders(v.node, v.unit, depth + 1) if v is not None and depth < _HOPS else () for v in held]
        else:
            origins = [o for o in self.origins.of(node, unit) if o is None or dotted(o.node) != "None"]
            made = [self._made_by(origin, depth) if origin is not None else () for origin in origins]
        return tuple(dict.fromkeys(call for calls in made for call in calls)) if all(made) else ()

    def _made_by(self, origin: Origin, depth: int) -> tuple[LoaderCall, ...]:
        if isinstance(origin.node, cst.Subscript) and depth < _HOPS:
            return self.loaders(origin.node, origin.unit, depth + 1)
        if not isinstance(origin.node, cst.Call):
            return ()
        if self._file.names.qualified(origin.node.func, origin.unit) == DATA_LOADER:
            return (LoaderCall(origin.node, origin.unit),)
        inner = next(iterated(origin.node))
        return self.loaders(inner, origin.unit, depth + 1) if inner is not origin.node and depth < _HOPS else ()

    def trains(self, loop: BatchLoop) -> bool:
        """Whether a batch goes backward in the loop, or in a function of the file that it calls."""
        return self._goes_backward(loop.node.body, loop.unit, set())

    def _goes_backward(self, scope: cst.CSTNode, unit: Unit, seen: set[cst.CSTNode]) -> bool:
        seen.add(scope)
        for node in code_below(unit, scope):
            if is_backward(node):
                return True
            if isinstance(node, cst.Call) and len(seen) <= _HOPS * 4:
                called = self.function(node, unit)
                if called is not None and called[1] not in seen and self._goes_backward(called[1], called[0], seen):
                    return True
        return False

    def function(self, call: cst.Call, unit: Unit) -> tuple[Unit, cst.FunctionDef] | None:
        """The function of the file that `call` runs: by name, or a method of the same class by `self.`."""
        name = dotted(call.func)
        if name.startswith("self.") and name.count(".") == 1:
            owner = unit.enclosing(call, cst.ClassDef)
            members = owner.body.body if owner is not None else ()
            found = (m for m in members if isinstance(m, cst.FunctionDef) and m.name.value == name[5:])
            method = next(found, None)
            return (unit, method) if method is not None else None
        if not name or "." in name:
            return None
        inner = unit.enclosing(call, cst.FunctionDef)
        for node in unit.below(inner) if inner is not None else ():
            if isinstance(node, cst.FunctionDef) and node.name.value == name:
                return unit, node
        return self._file.placement.world.function(name)

    def repeated(self, loop: BatchLoop) -> tuple[cst.For | cst.While, Unit] | None:
        """The loop that runs a batch loop again and again over the same loader: an epoch loop, here or in a caller."""
        places: list[tuple[cst.CSTNode, Unit]] = [(loop.node, loop.unit)]
        seen: set[cst.CSTNode] = set()
        for _ in range(_HOPS):
            callers: list[tuple[cst.CSTNode, Unit]] = []
            for node, unit in places:
                function, outer = None, unit.parents.get(node)
                while outer is not None and function is None:
                    if isinstance(outer, (cst.For, cst.While)) and self._keeps(outer, node, unit, loop):
                        return outer, unit
                    function = outer if isinstance(outer, cst.FunctionDef) else None
                    outer = unit.parents.get(outer)
                if function is not None and function not in seen:
                    seen.add(function)
                    callers += self.calls(function, unit)
            places = callers
        return None

    def _keeps(self, outer: cst.For | cst.While, node: cst.CSTNode, unit: Unit, loop: BatchLoop) -> bool:
        """Whether a loop leaves the loader alone: it is neither made nor bound to a name in there."""
        start, end = unit.index_of(outer), unit.end_of(outer)
        if any(made.unit is unit and start <= unit.index_of(made.node) < end for made in loop.loaders):
            return False
        used = {dotted(loop.read)}
        if isinstance(node, cst.Call):
            handed = (arg.value for arg in node.args if not set(loop.loaders).isdisjoint(self.loaders(arg.value, unit)))
            used = {dotted(node.func).rpartition(".")[0], *map(dotted, handed)}
        if isinstance(loop.read, cst.Subscript) and node is loop.node:
            used |= {dotted(inner) for inner in unit.below(loop.read)}
        used -= {"", "self"}
        for inner in unit.below(outer):
            if isinstance(inner, cst.Assign) and any(not used.isdisjoint(_bound(t.target)) for t in inner.targets):
                if any(isinstance(value, (cst.Call, cst.Subscript)) for value in iterated(inner.value)):
                    return False
        return not isinstance(outer, cst.For) or used.isdisjoint(_bound(outer.target))

    def calls(self, scope: cst.CSTNode, unit: Unit) -> Iterator[tuple[cst.CSTNode, Unit]]:
        """The calls of a function or a class of the file; those of a method by its name, on whatever object."""
        if not isinstance(scope, (cst.FunctionDef, cst.ClassDef)):
            return
        name = scope.name.value
        method = isinstance(unit.enclosing(scope, cst.ClassDef, cst.FunctionDef), cst.ClassDef)
        for other in self._file.units:
            if name not in other.words:
                continue
            try:
                _ = other.module
            except UnitTooDeep:
                continue
            for node in other.nodes:
                if isinstance(node, cst.Call):
                    text = dotted(node.func)
                    if text == name or (method and text.endswith("." + name)):
                        yield node, other


def iterated(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a loop over `node` takes its elements from, with `enumerate`, `tqdm`, `zip` and their like taken off."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, cst.Call):
            name = dotted(node.func).rpartition(".")[2]
            if name == "zip":
                pending += [arg.value for arg in node.args if not arg.star]
                continue
            if (name in WRAPPERS or name in ("enumerate", "log_every")) and node.args and not node.args[0].star:
                pending.append(node.args[0].value)
                continue
        yield node


def _values(origin: Origin | None, read: cst.Subscript) -> Iterator[Origin | None]:
    """What a dictionary that `origin` makes holds under the key that is read: every value where the key is a variable."""
    if origin is not None and isinstance(origin.node, cst.DictComp):
        yield Origin(origin.node.value, origin.unit)
        return
    if origin is None or not isinstance(origin.node, cst.Dict):
        yield None
        return
    index = read.slice[0].slice
    wanted = string_value(index.value) if isinstance(index, cst.Index) else None
    for element in origin.node.elements:
        key = string_value(element.key) if isinstance(element, cst.DictElement) else None
        if key is None or wanted is None or key == wanted:
            yield Origin(element.value, origin.unit) if key is not None else None


def _bound(target: cst.CSTNode) -> set[str]:
    """The dotted names in an assignment target."""
    if isinstance(target, (cst.Tuple, cst.List)):
        return set().union(*(_bound(element.value) for element in target.elements))
    return {dotted(target)} - {""}
