"""TDL509 autograd-variable and TDL510 volatile: what tensors took over in torch 0.4."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import argument, delete_statement, has_unpacking, remove_argument
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
        statement = self._says_nothing_without(node)
        edits: list[Edit | None] = [Edit(start, first, ""), Edit(last, end, "")]
        if statement is not None:
            edits = [delete_statement(self.unit, statement)]
        made = tuple(edit for edit in edits if edit is not None)
        return Fix("Use the tensor itself", made, "safe" if fresh else "unsafe", (), gone) if made else None

    def _says_nothing_without(self, node: cst.Call) -> cst.Assign | None:
        """The assignment that would become `x = x`, or `x, y = x, y`, without the `Variable` of each value."""
        above = self.parent(node)
        while isinstance(above, (cst.Element, cst.Tuple)):
            above = self.parent(above)
        if not isinstance(above, cst.Assign) or len(above.targets) != 1:
            return None
        targets, values = _elements(above.targets[0].target), _elements(above.value)
        if len(targets) != len(values):
            return None
        pairs = zip(targets, values, strict=True)
        same = all(isinstance(one, cst.Name) and one.value == self._wrapped(value) for one, value in pairs)
        return above if same else None

    def _wrapped(self, node: cst.BaseExpression) -> str:
        """The name that `node` is, or wraps in a `Variable` and nothing else."""
        if isinstance(node, cst.Call) and len(node.args) == 1 and self.name(node.func) == _VARIABLE:
            arg = node.args[0]
            node = arg.value if arg.keyword is None and not arg.star else node
        return dotted(node)


def _elements(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple display, or `node` alone."""
    return [element.value for element in node.elements] if isinstance(node, cst.Tuple) else [node]
