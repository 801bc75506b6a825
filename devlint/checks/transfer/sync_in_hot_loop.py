"""TDL207 sync-in-hot-loop: the host waits for the device, again and again within a step."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted

_SYNCS = ("item", "tolist", "cpu", "numpy")
_MANY = 4
_PREDICATES = frozenset(f"torch.{name}" for name in "isnan isinf isfinite any all equal allclose".split())
_WAITS = frozenset(("torch.cuda.synchronize", "torch.accelerator.synchronize"))
_MEASURES = re.compile(r"\btime\b|timer|perf|profil|Event\(|stream|bench|distributed", re.I)


class SyncInHotLoop(Check):
    rules = (
        Rule(
            "TDL207",
            "sync-in-hot-loop",
            "several waits for the device in every step of a training loop, or one for every parameter",
        ),
    )
    triggers = (("item", "tolist", "cpu", "numpy", "synchronize"), ("for", "while"))
    patterns = (r"\.(?:item|tolist|cpu|numpy|synchronize)\(\)",)

    def visit_For(self, node: cst.For) -> None:
        self._training(node)

    def visit_While(self, node: cst.While) -> None:
        self._training(node)

    def _training(self, loop: cst.For | cst.While) -> None:
        nodes = list(code_below(self.unit, loop.body))
        if not any(is_backward(node) and self._loop_of(node) is loop for node in nodes):
            return
        syncs = [
            node
            for node in nodes
            if (method_call(node, *_SYNCS) and self._every_step(node, loop)) or self._asks(node, loop)
        ]
        if len(syncs) >= _MANY:
            self.report(
                syncs[0],
                "TDL207",
                f"{len(syncs)} calls in every step copy to the host or wait for the device, which then has nothing to do; add up on the "
                "device (devlint.runtime.Mean), and read once, after the loop",
                evidence=[(sync, "another one") for sync in syncs[1:4]],
            )
        for node in nodes:
            if self._is_wait(node) and not self._now_and_then(node, loop):
                self.report(
                    node,
                    "TDL207",
                    "this waits for the device in every step, which then has nothing to do; only timing needs it",
                )
                return
            if method_call(node, "item") and self._over_elements(node, loop) and not self._now_and_then(node, loop):
                self.report(
                    node,
                    "TDL207",
                    "this waits for the device once for every element, in every step; compare whole tensors, and read the result once",
                )
                return
            if (
                method_call(node, "item", "tolist")
                and self._over_parameters(node)
                and not self._now_and_then(node, loop)
            ):
                self.report(
                    node,
                    "TDL207",
                    "this waits for the device once for every parameter, in every step; keep the sum a tensor, and read it once",
                )
                return

    def _asks(self, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
        """Whether a branch of every step asks a tensor, as in `if torch.isnan(loss):`."""
        if not isinstance(node, cst.Call) or self.name(node.func) not in _PREDICATES:
            return False
        at = self.parent(node)
        if isinstance(at, cst.UnaryOperation):
            at = self.parent(at)
        block = self.parent(at) if isinstance(at, cst.If) else None
        return block is not None and self.parent(block) is loop

    def _is_wait(self, node: cst.CSTNode) -> bool:
        """Whether a step ends with `torch.cuda.synchronize()`, in a file that measures and shares nothing."""
        if (
            not isinstance(node, cst.Call)
            or self.name(node.func) not in _WAITS
            or not isinstance(self.parent(node), cst.Expr)
        ):
            return False
        return _MEASURES.search(self.file.source.text) is None

    def _over_elements(self, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
        """Whether a loop over the elements of a batch, inside of the training loop, is around the node."""
        inner = self._loop_of(node)
        if not isinstance(inner, cst.For) or inner is loop:
            return False
        source = self.unit.module.code_for_node(inner.iter).strip()
        return re.fullmatch(r"range\((?:\w+\.(?:size\(0\)|shape\[0\])|len\(\w+\))\)", source) is not None

    def _now_and_then(self, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
        """Whether a test such as `if step % 100 == 0` or `if debug` leaves most steps alone."""
        above = self.parent(node)
        while above is not None and above is not loop:
            if isinstance(above, cst.If) and re.search(
                r"%|log|debug|verbose|print", self.unit.module.code_for_node(above.test)
            ):
                return True
            above = self.parent(above)
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """`step` of an optimizer, which runs over every parameter."""
        owner = self.enclosing(node, cst.ClassDef)
        if node.name.value != "step" or owner is None:
            return
        if not any(self.name(base.value) == "torch.optim.Optimizer" for base in owner.bases):
            return
        for inner in code_below(self.unit, node):
            if method_call(inner, "item", "tolist") and self._over_parameters(inner):
                self.report(
                    inner,
                    "TDL207",
                    "this waits for the device once for every parameter, in every step; keep the sum a tensor, and read it once",
                )
                return

    def _over_parameters(self, node: cst.CSTNode) -> bool:
        """Whether a loop over parameters, or over their groups, is around the node."""
        loop = self._loop_of(node)
        return isinstance(loop, cst.For) and "param" in self.unit.module.code_for_node(loop.iter)

    def _loop_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        above = self.parent(node)
        while above is not None and not isinstance(above, (cst.For, cst.While)):
            above = self.parent(above)
        return above

    def _every_step(self, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
        """Whether the call runs in each round, on something that is not the host's own."""
        above = self.parent(node)
        while above is not None and above is not loop:
            if isinstance(above, (cst.If, cst.IfExp, cst.For, cst.While, cst.Try, cst.ExceptHandler)):
                return False
            above = self.parent(above)
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        return not dotted(node.func.value).startswith(("np.", "numpy."))
