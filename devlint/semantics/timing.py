"""Stretches of code between two reads of the host's clock of which the difference is taken, and what waits in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from devlint.edits import statement_of
from devlint.lazycst import cst
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

CLOCKS = frozenset(
    "time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns timeit.default_timer "
    "datetime.datetime.now datetime.datetime.utcnow".split()
)
"""Functions that tell how much time has passed for the host."""
_LOOPS = (cst.For, cst.While, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_SCOPES = (cst.FunctionDef, cst.Lambda, cst.ClassDef)


@dataclass(frozen=True)
class Region:
    """What runs between the clock reads `start` and `stop`: `nodes`, in the order in which they are evaluated.

    `stop` is in the block of `start`'s statement, or below it under conditions; code that is only defined there is left
    out, and so is the expression that `stop` is an argument of.
    """

    start: cst.Call
    stop: cst.Call
    nodes: tuple[cst.CSTNode, ...]


def regions(unit: Unit, names: Names) -> Iterator[Region]:
    """The timed regions of a unit."""
    _ = unit.module
    clocks = [node for node in unit.nodes if isinstance(node, cst.Call) and names.qualified(node.func, unit) in CLOCKS]
    starts: list[tuple[str, cst.Call]] = [(name, node) for node in clocks for name in _names_of(unit, node)]
    found: set[cst.Call] = set()
    for node in unit.nodes:
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Subtract):
            continue
        stop = node.left if node.left in clocks else _last(unit, starts, dotted(node.left), node)
        start = _last(unit, starts, dotted(node.right), stop) if stop is not None else None
        if isinstance(stop, cst.Call) and start is not None and stop not in found:
            nodes = _between(unit, start, stop)
            if nodes:
                found.add(stop)
                yield Region(start, stop, tuple(nodes))


def _names_of(unit: Unit, clock: cst.Call) -> Iterator[str]:
    """The names that an assignment gives to this read of the clock."""
    statement = unit.parents.get(clock)
    place: int | None = None
    if isinstance(statement, cst.Element):
        above = unit.parents.get(statement)
        if isinstance(above, cst.Tuple):
            place, statement = list(above.elements).index(statement), unit.parents.get(above)
    if isinstance(statement, cst.AnnAssign) and place is None:
        yield dotted(statement.target)
    for target in statement.targets if isinstance(statement, cst.Assign) else ():
        at: cst.CSTNode = target.target
        if place is None:
            yield dotted(at)
        elif isinstance(at, cst.Tuple) and place < len(at.elements):
            yield dotted(at.elements[place].value)


def _last(unit: Unit, starts: list[tuple[str, cst.Call]], name: str, node: cst.CSTNode) -> cst.Call | None:
    """The last read of the clock before `node`, in the same function, that the name was given."""
    scope, index = unit.enclosing(node, *_SCOPES), unit.index_of(node)
    reads = [at for given, at in starts if name and given == name and unit.enclosing(at, *_SCOPES) is scope]
    return max((at for at in reads if unit.index_of(at) < index), key=unit.index_of, default=None)


def _between(unit: Unit, start: cst.Call, stop: cst.Call) -> list[cst.CSTNode]:
    """What runs from `start` to `stop`; nothing where a loop may come between them, or another way leads around."""
    first = statement_of(unit, start)
    line = unit.parents.get(first) if first is not None else None
    block = unit.parents.get(line) if isinstance(line, cst.SimpleStatementLine) else None
    if first is None or block is None:
        return []
    above, around = unit.parents.get(stop), set()
    while above is not None and above is not block:
        around.add(above)
        if isinstance(above, (*_LOOPS, *_SCOPES, cst.Try, cst.Else, cst.Match)):
            return []
        above = unit.parents.get(above)
    if above is None:
        return []
    nodes: list[cst.CSTNode] = []
    index, last = unit.end_of(first), unit.index_of(stop)
    while index < last:
        node = unit.nodes[index]
        if isinstance(node, _SCOPES) or (isinstance(node, cst.AssignTarget) and unit.parents.get(node) in around):
            # It is only defined here, or is what the difference is stored in afterwards.
            index = unit.end_of(node)
            continue
        if node not in around:
            nodes.append(node)
        index += 1
    return sorted(nodes, key=lambda node: (unit.end_of(node), -unit.index_of(node)))


def repeats(unit: Unit, loop: cst.CSTNode) -> bool:
    """Whether a loop only does the same again: over a `range`, of which the body does not use the number."""
    part = loop if isinstance(loop, cst.For) else getattr(loop, "for_in", None)
    if not isinstance(part, (cst.For, cst.CompFor)) or not isinstance(part.target, cst.Name):
        return False
    source = part.iter
    while isinstance(source, cst.Call) and dotted(source.func).rpartition(".")[2] == "tqdm" and source.args:
        source = source.args[0].value
    if not isinstance(source, cst.Call) or dotted(source.func) not in ("range", "trange", "tqdm.trange"):
        return False
    name = part.target.value
    used = [node for node in unit.below(loop) if isinstance(node, cst.Name) and node.value == name]
    return len(used) == 1


def loops_in(region: Region) -> Iterator[cst.CSTNode]:
    """The loops and comprehensions of a region."""
    return (node for node in region.nodes if isinstance(node, _LOOPS))
