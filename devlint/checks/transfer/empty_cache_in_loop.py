"""TDL211 empty-cache-in-loop: the allocator's cache thrown away every step."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import delete_statement
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.data_loader import DATA_LOADER
from devlint.semantics.origins import Origins
from devlint.semantics.training import code_below, is_backward
from devlint.semantics.tree import dotted

_CALLS = frozenset(f"torch.{name}.empty_cache" for name in ("cuda", "xpu", "mps", "accelerator", "accelerator.memory"))


class EmptyCacheInLoop(Check):
    rules = (
        Rule("TDL211", "empty-cache-in-loop", "`empty_cache()` in every step of a loop over batches", fix="unsafe"),
    )
    triggers = (("empty_cache",), ("for", "while"))

    def visit_Call(self, node: cst.Call) -> None:
        statement = self.parent(node)
        if not isinstance(statement, cst.Expr) or self.name(node.func) not in _CALLS:
            return
        line = self.parent(statement)
        block = self.parent(line) if line is not None else None
        loop = self.parent(block) if block is not None else None
        while isinstance(loop, cst.With):
            block = self.parent(loop)
            loop = self.parent(block) if block is not None else None
        if not isinstance(loop, (cst.For, cst.While)):
            return
        steps = [
            inner
            for inner in code_below(self.unit, loop.body)
            if is_backward(inner) and self.enclosing(inner, cst.For, cst.While) is loop
        ]
        if not steps and not self._draws_batches(loop):
            return
        edit = delete_statement(self.unit, statement)
        self.report(
            node,
            "TDL211",
            "this gives the cached memory back in every step, and the next step has to ask the driver for it again, which "
            "waits for the device; leave it out, or call it once an epoch",
            fix=Fix("Leave it out", (edit,), "unsafe") if edit else None,
        )

    def _draws_batches(self, loop: cst.For | cst.While) -> bool:
        """Whether a loop surely runs over a DataLoader."""
        source: cst.BaseExpression | None = loop.iter if isinstance(loop, cst.For) else None
        while (
            isinstance(source, cst.Call) and source.args and dotted(source.func) in ("enumerate", "tqdm", "tqdm.tqdm")
        ):
            source = source.args[0].value
        return source is not None and Origins(self.file).makers(source, self.unit) == {DATA_LOADER}
