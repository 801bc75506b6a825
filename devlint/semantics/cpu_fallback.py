"""Files that say themselves that they run without an accelerator, and how to ask there whether to pin memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.device_proof import DeviceProof
from devlint.semantics.tree import dotted
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File

_AVAILABLE = re.compile(r"torch\.(?:cuda|accelerator|xpu|mps|backends\.mps)\.is_available")
_LEAVES = re.compile(r"\b(?:raise|exit|abort|skip\w*|fail)\b")
_ABOUT_DEVICES = re.compile(r"cuda|gpu|device|accelerat|is_available|mps|xpu", re.I)
_ACCELERATED = re.compile(r"cuda|xpu|mps|gpu|accelerator")


class CpuFallback:
    """What one file does where there is no accelerator."""

    def __init__(self, file: File) -> None:
        self._file = file

    def found(self) -> tuple[cst.CSTNode, Unit] | None:
        """Where the file chooses the CPU in place of an accelerator; None where it does not, or refuses to run there."""
        first: tuple[cst.CSTNode, Unit] | None = None
        for unit in self._file.units:
            if unit.words.isdisjoint(("is_available", "cpu", "assert")):
                continue
            try:
                _ = unit.module
            except UnitTooDeep:
                continue
            for node in unit.nodes:
                if self._refuses(node, unit):
                    return None
                if first is None and self._chooses(node, unit):
                    first = node, unit
        return first

    def _refuses(self, node: cst.CSTNode, unit: Unit) -> bool:
        """`assert torch.cuda.is_available()`, and `if not torch.cuda.is_available(): raise …`."""
        if isinstance(node, cst.Assert):
            return self._asks(node.test, unit)
        if isinstance(node, cst.If) and isinstance(node.test, cst.UnaryOperation) and self._asks(node.test, unit):
            return _LEAVES.search(unit.module.code_for_node(node.body)) is not None
        return False

    def _asks(self, node: cst.CSTNode, unit: Unit) -> bool:
        return any(
            isinstance(inner, cst.Call)
            and _AVAILABLE.fullmatch(self._file.names.qualified(inner.func, unit)) is not None
            for inner in unit.below(node)
        )

    def _chooses(self, node: cst.CSTNode, unit: Unit) -> bool:
        if isinstance(node, cst.IfExp):
            return any(
                self._is_cpu(one, unit) and _ACCELERATED.search(unit.module.code_for_node(other)) is not None
                for one, other in ((node.body, node.orelse), (node.orelse, node.body))
            )
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
            return self._is_cpu(node.right, unit) and "accelerator" in unit.module.code_for_node(node.left)
        if not isinstance(node, cst.If) or isinstance(node.test, cst.UnaryOperation) or not self._asks(node.test, unit):
            return False
        moves = _ACCELERATED.search(unit.module.code_for_node(node.body)) is not None
        if node.orelse is None:
            return moves and ".cuda(" in unit.module.code_for_node(node.body)
        return moves and any(
            self._is_cpu(inner, unit) for inner in unit.below(node.orelse) if isinstance(inner, cst.BaseExpression)
        )

    def _is_cpu(self, node: cst.BaseExpression, unit: Unit) -> bool:
        if isinstance(node, cst.Call) and self._file.names.qualified(node.func, unit) == "torch.device":
            kind = argument(node, "type", 0) or argument(node, "device", 0)
            return kind is not None and string_value(kind.value) == "cpu"
        return string_value(node) == "cpu"

    def is_guarded(self, node: cst.CSTNode, unit: Unit) -> bool:
        """Whether a condition around a node, or one before it that leaves, asks about devices."""
        child, above = node, unit.parents.get(node)
        while above is not None:
            if isinstance(above, (cst.If, cst.IfExp)) and child is not above.test:
                if _ABOUT_DEVICES.search(unit.module.code_for_node(above.test)):
                    return True
            if isinstance(above, cst.IndentedBlock):
                for statement in above.body[: above.body.index(child)] if child in above.body else ():
                    if isinstance(statement, cst.If) and _ABOUT_DEVICES.search(
                        unit.module.code_for_node(statement.test)
                    ):
                        if re.search(r"\b(?:return|raise|continue)\b", unit.module.code_for_node(statement.body)):
                            return True
            child, above = above, unit.parents.get(above)
        return False

    def whether_to_pin(self, call: cst.CSTNode, unit: Unit) -> tuple[str, tuple[str, ...]]:
        """An expression that is true where memory can be pinned, and what must be imported for it."""
        if self._file.words.isdisjoint(("mps",)):
            proof = DeviceProof(self._file)
            for target, at in self._bound_before(call, unit):
                if proof.is_device(target, at):
                    return f'{dotted(target)}.type != "cpu"', ()
        asks = "accelerator" if "torch.accelerator" in self._file.source.text else "cuda"
        spelled, needs = self._file.names.spell(f"torch.{asks}.is_available")
        return f"{spelled}()", needs

    def _bound_before(self, call: cst.CSTNode, unit: Unit) -> Iterator[tuple[cst.BaseExpression, Unit]]:
        """The names with `device` in them that are surely bound where a call stands, the nearest first."""
        function = unit.enclosing(call, cst.FunctionDef)
        if function is not None:
            params = function.params
            yield from (
                (param.name, unit)
                for param in (*params.posonly_params, *params.params, *params.kwonly_params)
                if "device" in param.name.value and param.default is None
            )
            yield from self._assigned(function.body.body, unit, unit.index_of(call))
        if unit.enclosing(call, cst.ClassDef) is not None and function is None:
            return
        for other in self._file.units:
            if not other.name and (function is not None or other.start <= unit.start):
                limit = unit.index_of(call) if other is unit else None
                yield from self._assigned(other.module.body, other, limit)

    def _assigned(self, statements: object, unit: Unit, limit: int | None) -> Iterator[tuple[cst.BaseExpression, Unit]]:
        assert isinstance(statements, (list, tuple))
        for line in statements:
            for node in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if isinstance(node, cst.Assign) and (limit is None or unit.index_of(node) < limit):
                    for target in node.targets:
                        if re.fullmatch(r"(?:self\.)?\w*device", dotted(target.target)):
                            yield target.target, unit
