"""What a rule is: its facts, and the visitor that finds it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from devlint.findings import Evidence, Finding, Fix, Span
from devlint.lazycst import cst
from devlint.semantics.imports import Names
from devlint.settings import Settings
from devlint.source import Source
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.semantics.placement import Placement

_Node = TypeVar("_Node", bound="cst.CSTNode")


@dataclass(frozen=True)
class Rule:
    """The facts of one rule; its page, `rules/<family>/<code>-<name>.md`, says the rest."""

    code: str
    name: str
    summary: str
    fix: Literal["safe", "unsafe", "none"] = "none"
    default: bool = True
    since: str = "0.1.0"


@dataclass(eq=False)
class File:
    """One file under check, as the checks see it."""

    source: Source
    names: Names
    units: list[Unit]
    settings: Settings

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of every unit of the file."""
        return frozenset().union(*(unit.words for unit in self.units))

    @cached_property
    def place(self) -> tuple[str, str]:
        """The names of the file's folder and of the file itself, however the path was given."""
        folder, name = os.path.split(os.path.abspath(self.source.path))
        return os.path.basename(folder), name

    @cached_property
    def placement(self) -> Placement:
        """Where the file's tensors live; worked out function by function, when asked."""
        from devlint.semantics.placement import Placement

        return Placement(self)


class Check:
    """A visitor for one rule, or for several that share one proof.

    An instance serves one file. The engine walks each unit that holds the triggers and calls `visit_X(node)` before
    and `leave_X(node)` after the children of each node of LibCST class `X`; then `finish_unit()`; and `finish()`
    once after the last unit. `unit` is the unit being walked.

    `triggers` says which words a unit must hold for the rule to have anything to say: of each tuple, at least one.
    `patterns` are regular expressions that must each be found in the unit's text, too. Both see comments and strings,
    so they only ever save time; the narrower they are, the less is parsed.
    """

    rules: ClassVar[tuple[Rule, ...]]
    triggers: ClassVar[tuple[tuple[str, ...], ...]] = ()
    patterns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, file: File) -> None:
        self.file = file
        self.unit: Unit = file.units[0]
        self.findings: list[Finding] = []

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit can hold anything to report; `names` are the file's imports."""
        words = unit.words
        return all(not words.isdisjoint(alternatives) for alternatives in cls.triggers) and all(
            re.search(pattern, unit.text) for pattern in cls.patterns
        )

    def finish_unit(self) -> None:
        """Called after the last node of each unit that was walked."""

    def finish(self) -> None:
        """Called after the last unit."""

    def name(self, node: cst.CSTNode) -> str:
        """The canonical qualified name that `node` refers to, such as `torch.utils.data.DataLoader`; else ''."""
        return self.file.names.qualified(node, self.unit)

    def code(self, node: cst.CSTNode) -> str:
        """The text of `node` as the file has it."""
        return self.unit.code(node)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node directly above `node`."""
        return self.unit.parents.get(node)

    def enclosing(self, node: cst.CSTNode, *kinds: type[_Node]) -> _Node | None:
        """The nearest node above `node` of one of `kinds`."""
        return self.unit.enclosing(node, *kinds)

    def report(
        self,
        node: cst.CSTNode,
        code: str,
        message: str,
        *,
        fix: Fix | None = None,
        evidence: Iterable[tuple[cst.CSTNode, str]] = (),
        help: str = "",
        unit: Unit | None = None,
    ) -> None:
        """Report rule `code` at `node`; each step of the evidence is a node of the same unit and what it proves."""
        rule = next(rule for rule in self.rules if rule.code == code)
        if code not in self.file.settings.enabled:
            return
        unit = unit or self.unit
        steps = tuple(Evidence(_one_line(text), _header(unit.span(at))) for at, text in evidence)
        self.findings.append(
            Finding(code, rule.name, _one_line(message), unit.span(node), steps, fix, help, self.file.source.path)
        )


def _one_line(text: str) -> str:
    """A message as one line, though the code that it quotes may have several."""
    return " ".join(text.split()) if "\n" in text or "\r" in text else text


def _header(span: Span) -> Span:
    """A span cut to its first line: evidence points at a place, not at a block."""
    if span.end_line == span.line:
        return span
    return Span(span.line, span.column, span.line, span.column + 1)
