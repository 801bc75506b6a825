"""The ways through a block of statements, as the sequences of what happens on them.

Conditions are remembered by their text, so that `if scaler: …` twice on one way goes the same way twice. A loop inside is
gone through once. Beyond a bounded number of ways the rest is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from devlint.lazycst import cst
from devlint.semantics.training import code_below
from devlint.units import Unit

Event = TypeVar("Event")
_LIMIT = 48


@dataclass(frozen=True)
class Path(Generic[Event]):
    """One way: its events, the conditions taken, and whether control leaves the block before its end."""

    events: tuple[Event, ...] = ()
    taken: tuple[tuple[str, bool], ...] = ()
    left: bool = False

    def then(self, events: Sequence[Event]) -> Path[Event]:
        """This way, with more events on it."""
        return Path((*self.events, *events), self.taken, self.left) if events else self


class Paths(Generic[Event]):
    """Enumerates the ways through a block; `classify` says which event, if any, a node is."""

    def __init__(self, unit: Unit, classify: Callable[[cst.CSTNode], Event | None]) -> None:
        self._unit = unit
        self._classify = classify

    def through(self, body: cst.BaseSuite | cst.Module) -> list[Path[Event]]:
        """The ways through a suite, or through a module's own statements."""
        return self._block(list(body.body), [Path()])

    def _block(self, statements: Sequence[cst.CSTNode], paths: list[Path[Event]]) -> list[Path[Event]]:
        done: list[Path[Event]] = []
        for statement in statements:
            paths = self._statement(statement, paths)[:_LIMIT]
            done += [path for path in paths if path.left]
            paths = [path for path in paths if not path.left]
        return done + paths

    def _events(self, node: cst.CSTNode | None) -> list[Event]:
        if node is None:
            return []
        found = (self._classify(inner) for inner in code_below(self._unit, node))
        # Arguments run before the call that takes them: `a(b())` is b, then a; the walk meets a first.
        return [event for event in reversed(list(found)) if event is not None]

    def _statement(self, node: cst.CSTNode, paths: list[Path[Event]]) -> list[Path[Event]]:
        if isinstance(node, cst.SimpleStatementLine):
            return self._block(node.body, paths)
        if isinstance(node, (cst.Return, cst.Raise, cst.Continue, cst.Break)):
            events = self._events(node)
            return [Path((*path.events, *events), path.taken, True) for path in paths]
        if isinstance(node, cst.If):
            return self._if(node, paths)
        if isinstance(node, (cst.For, cst.While)):
            inner = [Path(p.events, p.taken, False) for p in self._block(node.body.body, paths)]
            return inner or paths
        if isinstance(node, cst.With):
            for item in node.items:
                events = self._events(item.item)
                paths = [path.then(events) for path in paths]
            return self._block(node.body.body, paths)
        if isinstance(node, cst.Try):
            after = self._block(node.body.body, paths)
            if node.finalbody is not None:
                after = self._block(node.finalbody.body.body, after)
            return after
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return paths
        events = self._events(node)
        return [path.then(events) for path in paths]

    def _if(self, node: cst.If, paths: list[Path[Event]]) -> list[Path[Event]]:
        key, positive = condition(self._unit.module.code_for_node(node.test))
        result: list[Path[Event]] = []
        events = self._events(node.test)
        for path in paths:
            path = path.then(events)
            known = dict(path.taken).get(key)
            for way in (True, False):
                if known is not None and known != (way == positive):
                    continue
                chosen = Path(path.events, (*path.taken, (key, way == positive)), False)
                if way:
                    result += self._block(node.body.body, [chosen])
                elif isinstance(node.orelse, cst.If):
                    result += self._if(node.orelse, [chosen])
                elif node.orelse is not None:
                    result += self._block(node.orelse.body.body, [chosen])
                else:
                    result.append(chosen)
        return result[:_LIMIT]


def condition(text: str) -> tuple[str, bool]:
    """A condition's text without its negation, and whether it stood without one: `x is None` is not `x`."""
    text = text.strip()
    match = re.fullmatch(r"(.+?)\s+is\s+(not\s+)?None", text)
    if match:
        return match[1], bool(match[2])
    if text.startswith("not "):
        key, positive = condition(text[4:])
        return key, not positive
    return text, True
