"""TDL311 cuda-in-forked-process: CUDA work in a process that was forked after CUDA had begun."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, move_of, string_value
from devlint.semantics.tree import dotted
from devlint.units import Unit

# torch's own module is Python's, with tensors that are shared: it forks, too.
_PROCESSES = frozenset(("multiprocessing.Process", "torch.multiprocessing.Process"))
_POOLS = frozenset(("multiprocessing.Pool", "multiprocessing.pool.Pool", "torch.multiprocessing.Pool"))
_MAPS = frozenset("map imap imap_unordered starmap apply apply_async map_async starmap_async".split())
_SPAWN = re.compile(r"""["'](?:spawn|forkserver)["']""")


class CudaAfterFork(Check):
    rules = (
        Rule(
            "TDL311",
            "cuda-in-forked-process",
            "a forked process runs a function that uses CUDA, after CUDA was used in its parent",
        ),
    )
    triggers = (("Pool", "Process"),)
    patterns = (r"cuda",)

    def visit_Call(self, node: cst.Call) -> None:
        if _SPAWN.search(self.file.source.text):
            return
        name = self.name(node.func)
        if name in _PROCESSES:
            target = argument(node, "target", 1)
            self._judge(node, target.value if target is not None else None)
        elif isinstance(node.func, cst.Attribute) and node.func.attr.value in _MAPS and node.args:
            if self._is_pool(dotted(node.func.value), node):
                self._judge(node, node.args[0].value)

    def _is_pool(self, name: str, node: cst.CSTNode) -> bool:
        """Whether the function around binds `name` to a pool of multiprocessing's own."""
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        for other in self.unit.below(scope):
            if isinstance(other, cst.WithItem) and other.asname is not None and dotted(other.asname.name) == name:
                value: cst.BaseExpression = other.item
            elif isinstance(other, cst.Assign) and dotted(other.targets[0].target) == name:
                value = other.value
            else:
                continue
            if isinstance(value, cst.Call) and self.name(value.func) in _POOLS:
                return True
        return False

    def _judge(self, node: cst.Call, target: cst.BaseExpression | None) -> None:
        found = self.file.placement.world.function(dotted(target)) if target is not None else None
        if found is None:
            return
        unit, function = found
        inside = next((other for other in unit.below(function) if self._uses_cuda(other, unit)), None)
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        before = next(
            (other for other in self.unit.below(scope) if self._uses_cuda(other, self.unit, queries=True)), None
        )
        if inside is None or before is None or self.unit.index_of(before) > self.unit.index_of(node):
            return
        self.report(
            node,
            "TDL311",
            f"`{function.name.value}` uses CUDA in a process that is forked, and its parent has used CUDA before: `Cannot re-initialize "
            'CUDA in forked subprocess`; take `multiprocessing.get_context("spawn")`',
            evidence=[(before, "the parent uses CUDA here")],
        )

    def _uses_cuda(self, node: cst.CSTNode, unit: Unit, *, queries: bool = False) -> bool:
        if not isinstance(node, cst.Call):
            return False
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "cuda":
            return True
        move = move_of(node)
        if move is not None and not move.to_cpu and ("cuda" in move.device or self._is_literal(move.device_node)):
            return True
        name = self.file.names.qualified(node.func, unit)
        return queries and name.startswith("torch.cuda.") and not name.endswith(("is_available", "manual_seed"))

    def _is_literal(self, node: cst.BaseExpression | None) -> bool:
        return (string_value(node) or "").partition(":")[0] in ACCELERATORS
