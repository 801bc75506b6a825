"""TDL708 autocast-hardcoded-cuda: a literal device type beside a device variable."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import string_value

_SYMBOLIC = re.compile(r"\.to\(\s*(?:self\.)?(?:\w+\.)?device\b|device\s*=\s*(?:self\.)?(?:\w+\.)?device\b")


class AutocastHardcoded(Check):
    rules = (
        Rule(
            "TDL708",
            "autocast-hardcoded-cuda",
            '`torch.autocast("cuda")` in code that moves to a device of the caller\'s choice',
            default=False,
        ),
    )
    triggers = (("autocast",), ("device",))
    patterns = (r"autocast\(\s*(?:device_type\s*=\s*)?[\"']cuda[\"']",)

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != "torch.amp.autocast":
            return
        device = argument(node, "device_type", 0)
        function = self.enclosing(node, cst.FunctionDef)
        if device is None or function is None or string_value(device.value) != "cuda":
            return
        if argument(node, "enabled") is not None or not _SYMBOLIC.search(self.unit.module.code_for_node(function)):
            return
        self.report(
            node,
            "TDL708",
            "this function moves to a device that it is given, and autocasts for CUDA whatever that is: elsewhere autocast warns and "
            "switches itself off; use `device.type`, or devlint.runtime.precision(device=device).autocast()",
        )
