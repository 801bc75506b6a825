"""TDL204 pin-memory-then-to: pinning by hand, on the thread that then waits for the copy."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import Move, balanced, move_of

# A memory-mapped or NumPy source is nobody's tensor yet: pinning is the one copy out of it.
_HOST_SOURCES = ("memmap", "from_numpy", "frombuffer")
_BACKGROUND = ("Thread", "prefetch", "preload", "stream", "Stream", "queue", "Queue")


class PinMemoryThenTo(Check):
    rules = (
        Rule(
            "TDL204",
            "pin-memory-then-to",
            "`x.pin_memory().to(device)`: the pinning copy blocks, and costs more than it saves",
            fix="unsafe",
        ),
    )
    triggers = (("pin_memory",), ("to", "cuda"))
    patterns = (rf"\.\s*pin_memory\s*\({balanced(1)}\)\s*\.\s*(?:to|cuda)\s*\(",)

    def visit_Call(self, node: cst.Call) -> None:
        move = move_of(node)
        if move is None or move.to_cpu or not isinstance(move.receiver, cst.Call):
            return
        pin = move.receiver
        if not isinstance(pin.func, cst.Attribute) or pin.func.attr.value != "pin_memory":
            return
        if not self.unit.words.isdisjoint(_HOST_SOURCES + _BACKGROUND):
            return
        value = self.code(pin.func.value)
        self.report(
            node,
            "TDL204",
            f"`{value}.pin_memory()` copies `{value}` on this thread before the transfer can start, up to twice as "
            "slow as the transfer alone; move it directly, or let the loader pin: "
            "devlint.runtime.make_loader(dataset, device=device)",
            fix=self._fix(pin, move),
        )

    def _fix(self, pin: cst.Call, move: Move) -> Fix | None:
        assert isinstance(pin.func, cst.Attribute)
        if pin.lpar:
            return None
        end = self.unit.offsets(pin)[1]
        start = self.unit.offsets(pin.func.value)[1]
        text = self.file.source.text
        for _ in pin.func.value.rpar if hasattr(pin.func.value, "rpar") else ():
            start = text.index(")", start) + 1
        if "#" in text[start:end]:
            return None
        return Fix("Move the tensor without pinning it first", (Edit(start, end, ""),), "unsafe")
