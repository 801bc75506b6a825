"""Whether code runs with gradients: `no_grad`, `inference_mode`, `enable_grad` and `set_grad_enabled`, wherever they stand."""

from __future__ import annotations

import re

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

OFF = frozenset(("torch.no_grad", "torch.inference_mode"))
_SET = frozenset(("torch.set_grad_enabled", "torch.autograd.set_grad_enabled"))


class GradMode:
    """The gradient mode that a context manager or a decorator asks for: True, False, or None where it cannot be told."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def of_context(self, node: cst.BaseExpression, unit: Unit, mode: bool | None) -> bool | None:
        """The mode inside `with node:`, given the one around it."""
        name = self._names.qualified(node.func if isinstance(node, cst.Call) else node, unit)
        if name == "torch.enable_grad":
            return True
        if isinstance(node, cst.Call) and (name in OFF or name in _SET):
            flag = argument(node, "mode", 0)
            if flag is None:
                return False if name in OFF else None
            given = flag.value.value if isinstance(flag.value, cst.Name) else ""
            literal = {"True": True, "False": False}.get(given)
            if literal is None:
                return None
            return not literal if name in OFF else literal
        if name.startswith("torch."):
            return mode
        return None if re.search("grad|inference", unit.module.code_for_node(node)) else mode

    def of_function(self, function: cst.FunctionDef, unit: Unit) -> bool | None:
        """The mode that a function's decorators set; True where they say nothing."""
        mode: bool | None = True
        for decorator in reversed(function.decorators):
            node = decorator.decorator
            if self._names.qualified(node, unit) in OFF:
                mode = False
            else:
                mode = self.of_context(node, unit, mode)
        return mode

    def around(self, node: cst.CSTNode, unit: Unit) -> bool | None:
        """The mode that the blocks and the decorators around `node` set."""
        above: list[cst.CSTNode] = []
        at = unit.parents.get(node)
        while at is not None and not isinstance(at, cst.FunctionDef):
            above += [at] if isinstance(at, cst.With) else []
            at = unit.parents.get(at)
        mode = self.of_function(at, unit) if at is not None else True
        for block in reversed(above):
            for item in block.items if isinstance(block, cst.With) else ():
                mode = self.of_context(item.item, unit, mode)
        return mode

    def of_statement(self, node: cst.CSTNode, unit: Unit, mode: bool | None) -> bool | None:
        """The mode behind a statement: `torch.set_grad_enabled(False)` switches for good."""
        if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
            return mode
        name = self._names.qualified(node.value.func, unit)
        if name in _SET:
            return self.of_context(node.value, unit, mode)
        return None if "set_grad_enabled" in dotted(node.value.func) else mode
