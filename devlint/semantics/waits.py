"""What makes the host wait until the device has done what it was asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from devlint.edits import has_unpacking
from devlint.lazycst import cst
from devlint.semantics.calls import move_of
from devlint.semantics.flow import api
from devlint.semantics.imports import bound_at
from devlint.semantics.timing import CLOCKS
from devlint.semantics.training import looks_like_optimizer, method_call
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

_WAITS = re.compile(
    r"(?<!no_)sync|barrier|\bwait|empty_cache|\.(?:item|tolist|cpu|numpy|nonzero|unique|is_nonzero|masked_select|equal|"
    r"allclose|save|elapsed_time|unique_consecutive|to_numpy|asnumpy|unscale_)$|^(?:np|numpy)\.",
    re.I,
)
"""Names of calls after which the host knows what the device has computed."""
_WAITS_INSIDE = re.compile(r"(?<!no_)sync|\.(?:item|tolist|cpu|numpy|nonzero|unique|save)\(|\bprint\(|float\(|np\.")
_NEUTRAL = frozenset(
    "len range enumerate zip isinstance type iter next super tqdm trange format list dict tuple".split()
)
_METHODS = frozenset("append extend zero_grad train eval backward to cuda keys values items parameters".split())
_METHODS |= api.KEEP_METHODS | api.COMBINE_METHODS | api.NEW | api.TENSOR_METHODS | api.HOST_METHODS
_TESTS = (cst.If, cst.While, cst.IfExp, cst.Assert)
_PLAIN_INDICES = (cst.Integer, cst.SimpleString, cst.UnaryOperation, cst.Ellipsis)


class Waits:
    """Tells of the nodes of one file whether the host waits at them."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._names = file.names

    def surely(self, nodes: Iterable[cst.CSTNode], unit: Unit) -> bool:
        """Whether something among `nodes` waits, or gives way to what may."""
        return any(
            isinstance(node, (cst.Await, cst.Yield)) or (isinstance(node, cst.Call) and self._is_wait(node, unit))
            for node in nodes
        )

    def perhaps(self, nodes: Collection[cst.CSTNode], unit: Unit, results: Collection[cst.CSTNode]) -> bool:
        """Whether something among `nodes`, or that is unknown among them, may wait for one of the `results`."""
        bound = {name for node in nodes for name in bound_at(node)} | {
            name for node in results for name in self._given(node, unit)
        }
        return any(self._may_wait(node, unit, bound, results) for node in nodes)

    def _given(self, node: cst.CSTNode, unit: Unit) -> set[str]:
        """The names that an assignment gives to a result."""
        above = unit.enclosing(node, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr)
        return {name for inner in unit.below(above) for name in bound_at(inner)} if above is not None else set()

    def _is_wait(self, node: cst.Call, unit: Unit) -> bool:
        name = dotted(node.func) or ("." + node.func.attr.value if isinstance(node.func, cst.Attribute) else "")
        if _WAITS.search(name) or _WAITS.search(self._names.qualified(node.func, unit)):
            return True
        move = move_of(node)
        if move is not None and move.to_cpu:
            return True
        last = name.rpartition(".")[2]
        return bool(last) and any(_WAITS_INSIDE.search(text) for text in self._defined(last))

    def _defined(self, name: str) -> list[str]:
        """The text of each function of the file of that name, methods of all classes included."""
        return [
            other.code(node)
            for other in self._file.units
            if name in other.words and other.name and re.search(rf"\bdef {name}\b", other.text)
            for node in other.below(other.module)
            if isinstance(node, cst.FunctionDef) and node.name.value == name
        ]

    def _may_wait(self, node: cst.CSTNode, unit: Unit, bound: set[str], results: Collection[cst.CSTNode]) -> bool:
        above = unit.parents.get(node)
        if isinstance(above, _TESTS) and above.test is node:
            return any(
                (isinstance(inner, cst.Name) and inner.value in bound) or inner in results for inner in unit.below(node)
            )
        if isinstance(node, cst.Index):
            # A mask of truth values is counted first, and its result has as many elements.
            return not isinstance(node.value, _PLAIN_INDICES)
        if not isinstance(node, cst.Call) or node in results:
            return False
        name, qualified = dotted(node.func), self._names.qualified(node.func, unit)
        if qualified.startswith("torch.") or qualified in CLOCKS or name in _NEUTRAL:
            return False
        if isinstance(node.func, cst.Attribute):
            if move_of(node) is not None:
                # A copy to the device from memory that is not pinned waits for what was asked for before it.
                return True
            if method_call(node, "step", "update"):
                receiver = dotted(node.func.value)
                if not has_unpacking(node) and (looks_like_optimizer(receiver) or "sched" in receiver or not node.args):
                    return False
            if node.func.attr.value in _METHODS:
                return False
        return any(not isinstance(arg.value, (cst.SimpleString, cst.Integer, cst.Float)) for arg in node.args)
