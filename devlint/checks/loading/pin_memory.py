"""TDL305 pin-memory-unconditional: memory is pinned for an accelerator that may not be there."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.cpu_fallback import CpuFallback
from devlint.semantics.data_loader import DATA_LOADER, is_literal, option
from devlint.units import Unit


class PinMemoryUnconditional(Check):
    rules = (
        Rule(
            "TDL305",
            "pin-memory-unconditional",
            "`pin_memory=True` in a file that runs without an accelerator, too",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("pin_memory",), ("True",))

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only where the file speaks of the CPU or asks for a device, and of no GPU-only process group."""
        text = unit.source.text
        return ("cpu" in text or "is_available" in text) and "nccl" not in text and super().wants(unit, names)  # type: ignore[arg-type]

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != DATA_LOADER:
            return
        pinned, fallback = option(node, "pin_memory"), CpuFallback(self.file)
        if pinned is None or not is_literal(pinned, "True") or fallback.is_guarded(node, self.unit):
            return
        found = fallback.found()
        if found is None:
            return
        where, unit = found
        new, needs = fallback.whether_to_pin(node, self.unit)
        self.report(
            pinned,
            "TDL305",
            f"`pin_memory=True` pins nothing and warns where there is no accelerator, and line {unit.span(where).line} says that this file "
            f"runs there, too; write `pin_memory={new}`, or use devlint.runtime.make_loader",
            fix=Fix(f"Write `pin_memory={new}`", (replace(self.unit, pinned.value, new),), "unsafe", needs),
            evidence=[(where, "the CPU is chosen here")] if unit is self.unit else [],
        )
