"""TDL411 autocast-device-type and TDL412 autocast-positional-enabled: what autocast is given."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.device_proof import DeviceProof
from devlint.semantics.tree import dotted

_SWITCH = re.compile(r"^(?:use|enable|with|is)_|^amp$|_amp$|amp_enabled|enabled|mixed", re.I)


class AutocastArguments(Check):
    rules = (
        Rule(
            "TDL411", "autocast-device-type", "autocast is given a `torch.device`, or no device type at all", fix="safe"
        ),
        Rule("TDL412", "autocast-positional-enabled", "a switch that lands in autocast's `dtype`", fix="safe"),
    )
    triggers = (("autocast",),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._proof = DeviceProof(file)

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != "torch.amp.autocast" or has_unpacking(node):
            return
        device = argument(node, "device_type", 0)
        if device is None:
            self.report(
                node,
                "TDL411",
                "autocast wants a device type first: this raises a TypeError; write `torch.autocast(device.type)`",
            )
        elif isinstance(device.value, (cst.Name, cst.Attribute)) and self._proof.is_device(device.value, self.unit):
            code = self.code(device.value)
            end = self.unit.offsets(device.value)[1]
            self.report(
                device.value,
                "TDL411",
                f"`{code}` is a `torch.device`, and autocast wants the name of its type: this raises; write `{code}.type`",
                fix=Fix(f"Write `{code}.type`", (Edit(end, end, ".type"),), "safe"),
            )
        second = argument(node, "dtype", 1)
        if second is not None and second.keyword is None and self._is_switch(second.value):
            start = self.unit.offsets(second)[0]
            code = self.code(second.value)
            alone = sum(arg.keyword is None for arg in node.args) == 2
            self.report(
                second,
                "TDL412",
                f"the second argument of autocast is its dtype, and `{code}` is a switch: this raises when the block is entered; write "
                f"`enabled={code}`",
                fix=Fix(f"Write `enabled={code}`", (Edit(start, start, "enabled="),), "safe") if alone else None,
            )

    def _is_switch(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Name) and node.value in ("True", "False"):
            return True
        if isinstance(node, (cst.Comparison, cst.BooleanOperation)):
            return True
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Not)
        last = dotted(node).rpartition(".")[2]
        return bool(last) and "dtype" not in last and _SWITCH.search(last) is not None
