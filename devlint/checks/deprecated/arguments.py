"""TDL511 pin-memory-device, and the other arguments that can go (TDL518 for the rest of the table)."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.checks.deprecated.table import DROPPED, SCHEDULERS
from devlint.edits import argument, remove_argument
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.guards import is_compatibility_code


class DroppedArguments(Check):
    rules = (
        Rule("TDL511", "pin-memory-device", "`pin_memory_device=` of a DataLoader, which is ignored", fix="safe"),
        Rule("TDL519", "removed-argument", "an argument that torch no longer takes, or that does nothing", fix="safe"),
    )
    triggers = (("pin_memory_device", "check_reduction", "verbose"),)

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func)
        if not name.startswith("torch.") or is_compatibility_code(self.unit, node):
            return
        if name in DROPPED:
            code, keyword, why = DROPPED[name]
            code = "TDL511" if code == "TDL511" else "TDL519"
            self._drop(node, code, keyword, f"`{keyword}` {why}", (2, 8) if code == "TDL511" else (1, 0))
        elif name.startswith(SCHEDULERS):
            why = "`verbose` is deprecated since torch 2.2 and a TypeError since 2.7; print `scheduler.get_last_lr()`"
            self._drop(node, "TDL519", "verbose", why, (1, 0))

    def _drop(self, call: cst.Call, code: str, keyword: str, why: str, gate: tuple[int, int]) -> None:
        arg = argument(call, keyword)
        if arg is None:
            return
        edit = remove_argument(self.unit, call, arg) if self.file.settings.targets(*gate) else None
        self.report(arg, code, why, fix=Fix(f"Drop `{keyword}`", (edit,), "safe") if edit else None)
