"""TDL127 invalid-transfer-signature: a move that raises for the way it is called."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import is_device
from devlint.semantics.origins import Origins
from devlint.semantics.training import looks_like_optimizer
from devlint.semantics.tree import dotted


class TransferSignature(Check):
    rules = (Rule("TDL127", "invalid-transfer-signature", "a move called in a form that raises", fix="safe"),)
    triggers = (("to", "cuda", "cpu"),)
    patterns = (
        r"\.(?:to|cuda)\([^()\n]*\b(?:True|False)\b|\.cpu\([^)\n]|\]\s*\.\s*(?:to|cuda)\(|[Oo]pt\w*\.(?:to|cuda)\(",
    )

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        if not isinstance(func, cst.Attribute) or has_unpacking(node):
            return
        method = func.attr.value
        if method == "to" and len(node.args) == 2 and self._is_flag(node.args[1]) and is_device(node.args[0].value):
            self._flag(node.args[1], "the second argument of `.to()` is a dtype")
        elif method == "cuda" and len(node.args) == 1 and self._is_flag(node.args[0]):
            self._flag(node.args[0], "the first argument of `.cuda()` is a device")
        elif method == "cpu" and argument(node, "non_blocking") is not None:
            self.report(
                node,
                "TDL127",
                "`.cpu()` takes no `non_blocking`: this raises a TypeError; write `.cpu()`, which waits for the copy, as its reader needs",
            )
        elif method in ("to", "cuda"):
            self._receiver(node, func)

    def _is_flag(self, arg: cst.Arg) -> bool:
        return arg.keyword is None and isinstance(arg.value, cst.Name) and arg.value.value in ("True", "False")

    def _flag(self, arg: cst.Arg, why: str) -> None:
        start = self.unit.offsets(arg)[0]
        self.report(
            arg,
            "TDL127",
            f"{why}, and `{self.code(arg.value)}` is none: this raises a TypeError; write `non_blocking={self.code(arg.value)}`",
            fix=Fix("Name the argument", (Edit(start, start, "non_blocking="),), "safe"),
        )

    def _receiver(self, node: cst.Call, func: cst.Attribute) -> None:
        kind = ""
        if isinstance(func.value, (cst.List, cst.ListComp, cst.Dict, cst.DictComp, cst.Tuple)):
            kind = "a list, a tuple or a dict"
        elif looks_like_optimizer(dotted(func.value)) and self._is_optimizer(func.value):
            kind = "an optimizer"
        if kind:
            self.report(
                node,
                "TDL127",
                f"{kind} has no `.{func.attr.value}()`: this raises an AttributeError; move what is in it, for instance by "
                "devlint.runtime.to_device",
            )

    def _is_optimizer(self, node: cst.BaseExpression) -> bool:
        makers = Origins(self.file).makers(node, self.unit)
        return bool(makers) and all(maker.startswith("torch.optim.") for maker in makers)
