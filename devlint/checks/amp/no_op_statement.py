"""TDL417 no-op-mode-statement: a statement that was meant to do something."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.training import looks_like_optimizer
from devlint.semantics.tree import dotted

_MANAGERS = frozenset(
    ("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.amp.autocast", "torch.cuda.amp.autocast")
)
_METHODS = frozenset("eval train zero_grad backward step".split())


class NoOpStatement(Check):
    rules = (
        Rule(
            "TDL417",
            "no-op-mode-statement",
            "a context manager or a method that stands alone and does nothing",
            fix="unsafe",
        ),
    )
    patterns = (
        r"(?m)^\s*[\w.]+\.(?:eval|train|zero_grad|backward|step)\s*(?:#.*)?$|(?:no_grad|inference_mode|enable_grad|autocast)\b",
    )

    def visit_Expr(self, node: cst.Expr) -> None:
        value = node.value
        if isinstance(value, cst.Call) and self.name(value.func) in _MANAGERS:
            name = self.unit.module.code_for_node(value.func)
            self.report(
                node,
                "TDL417",
                f"`{name}(…)` is a context manager: alone it does nothing; write `with {name}(…):` around the code that it is for, or "
                f"decorate the function with `@{name}(…)`",
            )
        elif isinstance(value, cst.Attribute) and value.attr.value in _METHODS and self._is_training(value):
            code = self.code(value)
            self.report(
                node,
                "TDL417",
                f"`{code}` is not called: the statement does nothing; write `{code}()`",
                fix=Fix(f"Call `{code}`", (replace(self.unit, value, code + "()"),), "unsafe"),
            )

    def _is_training(self, value: cst.Attribute) -> bool:
        if value.attr.value in ("step", "zero_grad"):
            return looks_like_optimizer(dotted(value.value))
        return bool(dotted(value.value))

    def visit_With(self, node: cst.With) -> None:
        for item in node.items:
            if isinstance(item.item, (cst.Attribute, cst.Name)) and self.name(item.item) in _MANAGERS:
                code = self.code(item.item)
                fix = Fix(f"Call `{code}`", (replace(self.unit, item.item, code + "()"),), "unsafe")
                self.report(
                    item.item,
                    "TDL417",
                    f"`{code}` is not called, and a class is no context manager: this raises; write `with {code}():`",
                    fix=fix if "autocast" not in code else None,
                )
