"""TDL128 assert-device-in-forward: a check of devices that `python -O` strips."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst

_ASKS = ("device", "is_cuda", "is_cpu", "get_device")


class AssertDevice(Check):
    rules = (
        Rule(
            "TDL128",
            "assert-device-in-forward",
            "an `assert` about devices in `forward`, which `python -O` strips",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("assert",), ("forward",), _ASKS)

    def visit_Assert(self, node: cst.Assert) -> None:
        function = self.enclosing(node, cst.FunctionDef)
        owner = self.enclosing(node, cst.ClassDef)
        if function is None or owner is None or function.name.value != "forward":
            return
        if not self.file.placement.world.is_module(self.unit, owner):
            return
        if not any(
            isinstance(inner, cst.Attribute) and inner.attr.value in _ASKS for inner in self.unit.below(node.test)
        ):
            return
        self.report(
            node,
            "TDL128",
            "this check is gone under `python -O`, breaks the graph of `torch.compile`, and names no tensor when it fails; raise an error, or "
            "let devlint.runtime.guard_devices(module) watch the module",
            fix=self._fix(node),
        )

    def _fix(self, node: cst.Assert) -> Fix | None:
        line = self.parent(node)
        test = self.code(node.test)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or "\n" in self.code(node):
            return None
        message = self.code(node.msg) if node.msg is not None else '"tensors are on different devices"'
        indent = self.file.source.line(self.unit.span(node).line)[: self.unit.span(node).column]
        step = "\t" if "\t" in indent else "    "
        text = f"if not ({test}):{self.file.source.newline}{indent}{step}raise RuntimeError({message})"
        return Fix("Raise an error instead", (replace(self.unit, node, text),), "unsafe")
