"""Where a value comes from: the expressions in the file that a name, an attribute or a call may stand for.

Flow is ignored: every assignment to the name counts. Names are followed through assignments, tuple unpacking,
`self.x`, the returns of functions of the file, and a parameter's arguments at the calls in the file; parsing other
units only where they mention the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

_DEPTH = 6


@dataclass(frozen=True)
class Origin:
    """An expression that a value may be, and the unit that it stands in."""

    node: cst.BaseExpression
    unit: Unit


@dataclass(frozen=True)
class _Place:
    """What is asked for: an expression, and which element of it (`path`) is meant."""

    node: cst.BaseExpression
    unit: Unit
    path: tuple[int, ...] = ()


class Origins:
    """The origins of values in one file."""

    def __init__(self, file: File) -> None:
        self._file = file

    def of(self, node: cst.BaseExpression, unit: Unit) -> list[Origin | None]:
        """The expressions that `node` may stand for; None among them where one is not known."""
        found: list[Origin | None] = []
        seen: set[tuple[cst.CSTNode, tuple[int, ...]]] = set()
        stack = [(_Place(node, unit), 0)]
        while stack:
            place, depth = stack.pop()
            if (place.node, place.path) in seen:
                continue
            seen.add((place.node, place.path))
            steps = list(self._step(place)) if depth < _DEPTH else []
            if steps:
                stack += [(step, depth + 1) for step in steps if step is not None]
                found += [None for step in steps if step is None]
            elif place.path or self._is_variable(place.node, place.unit):
                found.append(None)
            else:
                found.append(Origin(place.node, place.unit))
        return found

    def makers(self, node: cst.BaseExpression, unit: Unit) -> frozenset[str]:
        """The qualified names of the calls that made what `node` stands for; none where it may be anything else.

        A call of what nothing is known of has an empty name.
        """
        made: set[str] = set()
        for origin in self.of(node, unit):
            if origin is None or not isinstance(origin.node, cst.Call):
                return frozenset()
            made.add(self._file.names.qualified(origin.node.func, origin.unit))
        return frozenset(made)

    def _is_variable(self, node: cst.BaseExpression, unit: Unit) -> bool:
        if not isinstance(node, cst.Name) or node.value in ("True", "False", "None"):
            return False
        return not self._file.names.qualified(node, unit).startswith("torch.")

    def _step(self, place: _Place) -> Iterator[_Place | None]:
        """One step back from `place`; nothing where it is an origin itself."""
        node, unit, path = place.node, place.unit, place.path
        if isinstance(node, (cst.Tuple, cst.List)) and path:
            if path[0] < len(node.elements):
                yield _Place(node.elements[path[0]].value, unit, path[1:])
            else:
                yield None
        elif isinstance(node, cst.IfExp):
            yield _Place(node.body, unit, path)
            yield _Place(node.orelse, unit, path)
        elif isinstance(node, cst.NamedExpr):
            yield _Place(node.value, unit, path)
        elif isinstance(node, cst.Name):
            yield from self._name(node, unit, path)
        elif isinstance(node, cst.Attribute) and dotted(node).startswith("self.") and dotted(node).count(".") == 1:
            yield from self._attribute(node, unit, path)
        elif isinstance(node, cst.Call):
            yield from self._returns(node, unit, path)

    def _name(self, node: cst.Name, unit: Unit, path: tuple[int, ...]) -> Iterator[_Place | None]:
        name = node.value
        function = unit.enclosing(node, cst.FunctionDef)
        while function is not None:
            values = list(self._assigned(unit, function, name, path))
            if values:
                yield from values
                return
            if any(param.name.value == name for param in _parameters(function)):
                yield from self._arguments(function, name, unit, path)
                return
            function = unit.enclosing(function, cst.FunctionDef)
        for other in self._file.units:
            if not other.name and name in other.words:
                yield from self._assigned(other, other.module, name, path)

    def _assigned(self, unit: Unit, scope: cst.CSTNode, name: str, path: tuple[int, ...]) -> Iterator[_Place | None]:
        """The values assigned to the dotted `name` in `scope`, functions inside it apart."""
        for node in unit.below(scope, cst.Assign, cst.AnnAssign, cst.For, cst.CompFor, cst.WithItem):
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    inner = _path_to(target.target, name)
                    if inner is not None:
                        yield _Place(node.value, unit, inner + path)
            elif isinstance(node, cst.AnnAssign):
                if node.value is not None and dotted(node.target) == name:
                    yield _Place(node.value, unit, path)
            elif isinstance(node, cst.WithItem):
                if node.asname is not None and _path_to(node.asname.name, name) is not None:
                    yield None
            elif _path_to(node.target, name) is not None:
                yield None

    def _attribute(self, node: cst.Attribute, unit: Unit, path: tuple[int, ...]) -> Iterator[_Place | None]:
        owner = unit.enclosing(node, cst.ClassDef)
        if owner is not None:
            yield from self._assigned(unit, owner, dotted(node), path)

    def _arguments(
        self, function: cst.FunctionDef, name: str, unit: Unit, path: tuple[int, ...]
    ) -> Iterator[_Place | None]:
        """What the calls in the file hand to parameter `name` of `function`."""
        owner = unit.enclosing(function, cst.ClassDef, cst.FunctionDef)
        called = function.name.value
        shift = 0
        if isinstance(owner, cst.ClassDef):
            shift = 0 if any(dotted(item.decorator) == "staticmethod" for item in function.decorators) else 1
            called = owner.name.value if called == "__init__" else called
        names = [param.name.value for param in _parameters(function)]
        position = names.index(name) - shift
        calls = 0
        for other in self._file.units:
            if called not in other.words:
                continue
            for call in _calls_of(other, called):
                calls += 1
                arg = argument(call, name, position)
                if arg is not None:
                    yield _Place(arg.value, other, path)
        if not calls:
            yield None

    def _returns(self, call: cst.Call, unit: Unit, path: tuple[int, ...]) -> Iterator[_Place | None]:
        """What a call of a function of this file returns; nothing for other calls."""
        name = dotted(call.func)
        if not name or (name.count(".") and not (name.startswith("self.") and name.count(".") == 1)):
            return
        wanted = name.rpartition(".")[2]
        for other in self._file.units:
            if other.name != wanted and not (name.startswith("self.") and other is unit):
                continue
            for node in other.below(other.module, cst.FunctionDef):
                if node.name.value == wanted:
                    for inner in other.below(node, cst.Return):
                        if other.enclosing(inner, cst.FunctionDef) is node:
                            yield _Place(inner.value, other, path) if inner.value is not None else None


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    parameters = function.params
    return [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]


def _calls_of(unit: Unit, name: str) -> Iterator[cst.Call]:
    for node in unit.below(unit.module, cst.Call):
        if dotted(node.func).rpartition(".")[2] == name:
            yield node


def _path_to(target: cst.CSTNode, name: str) -> tuple[int, ...] | None:
    """The way to dotted `name` in an assignment target: () for the target itself, (1,) for its second element."""
    if dotted(target) == name:
        return ()
    if isinstance(target, (cst.Tuple, cst.List)):
        for index, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                return None
            inner = _path_to(element.value, name)
            if inner is not None:
                return (index, *inner)
    return None
