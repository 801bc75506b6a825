"""TDL509 autograd-variable and TDL510 volatile: what tensors took over in torch 0.4."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import argument, has_unpacking, remove_argument
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, move_of
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_VARIABLE = "torch.autograd.Variable"
_FRESH = FACTORIES | {
    "torch.from_numpy",
    "torch.FloatTensor",
    "torch.LongTensor",
    "torch.Tensor",
    "torch.zeros_like",
    "torch.ones_like",
}


class AutogradVariable(Check):
    rules = (
        Rule("TDL509", "autograd-variable", "`torch.autograd.Variable`, which is a tensor since torch 0.4", fix="safe"),
        Rule("TDL510", "volatile", "`volatile=`, which does nothing since torch 0.4", fix="unsafe"),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit holds the name, or an alias of it."""
        return not unit.words.isdisjoint(names.words_for((_VARIABLE,)))

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != _VARIABLE or is_compatibility_code(self.unit, node):
            return
        volatile = argument(node, "volatile")
        if volatile is not None:
            edit = remove_argument(self.unit, node, volatile)
            self.report(
                volatile,
                "TDL510",
                "`volatile` does nothing since torch 0.4: the graph is built all the same; run the model under "
                "`with torch.no_grad():`",
                fix=Fix("Drop `volatile`", (edit,), "unsafe") if edit else None,
            )
        self.report(
            node,
            "TDL509",
            "`Variable` is a tensor since torch 0.4, and wrapping one only detaches it; use the tensor, with `requires_grad=True` "
            "where it is a leaf",
            fix=self._fix(node) if volatile is None else None,
        )

    def _fix(self, node: cst.Call) -> Fix | None:
        if has_unpacking(node) or len(node.args) != 1 or node.args[0].keyword is not None:
            return None
        value = node.args[0].value
        inner = value
        while isinstance(inner, cst.Call):
            move = move_of(inner)
            if move is None:
                break
            inner = move.receiver
        # Wrapping detaches: only of what has no graph yet is the tensor itself the same.
        fresh = isinstance(inner, cst.Call) and self.name(inner.func) in _FRESH
        start, end = self.unit.offsets(node)
        first, last = self.unit.offsets(value)
        text = self.file.source.text
        if "#" in text[start:first] + text[last:end] or getattr(value, "lpar", None):
            return None
        root = dotted(node.func).partition(".")[0]
        gone = () if self.file.names.aliases.get(root) == {"torch"} else (root,)
        edits = (Edit(start, first, ""), Edit(last, end, ""))
        return Fix("Use the tensor itself", edits, "safe" if fresh else "unsafe", (), gone)
