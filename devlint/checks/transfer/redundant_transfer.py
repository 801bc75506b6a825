"""TDL209 redundant-transfer: two moves in a row, of which the last alone would do."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import Move, balanced, move_of


class RedundantTransfer(Check):
    rules = (
        Rule(
            "TDL209",
            "redundant-transfer",
            "a tensor or module moved twice in one expression",
            fix="safe",
        ),
    )
    triggers = (("to", "cuda", "cpu"),)
    patterns = (rf"\.\s*(?:to|cuda|cpu)\s*\({balanced()}\)\s*\.\s*(?:to|cuda|cpu)\s*\(",)

    def visit_Call(self, node: cst.Call) -> None:
        last = move_of(node)
        if last is None or not isinstance(last.receiver, cst.Call):
            return
        inner = last.receiver
        first = move_of(inner)
        if first is None or (first.to_cpu and last.to_cpu):
            return
        if first.dtype is not None or any(not _is_non_blocking(arg) for arg in (*first.others, *last.others)):
            return
        first_code, last_code = self._method(inner), self._method(node)
        self.report(
            node,
            "TDL209",
            f"`{first_code}` moves it to `{first.device}`, and `{last_code}` moves it on at once; the last move alone "
            "does it",
            fix=self._fix(inner, first),
        )

    def _method(self, call: cst.Call) -> str:
        assert isinstance(call.func, cst.Attribute)
        start = self.unit.offsets(call.func.attr)[0]
        return "." + self.file.source.text[start : self.unit.offsets(call)[1]]

    def _fix(self, inner: cst.Call, first: Move) -> Fix | None:
        if inner.lpar or getattr(first.receiver, "lpar", ()):
            return None
        start, end = self.unit.offsets(first.receiver)[1], self.unit.offsets(inner)[1]
        if "#" in self.file.source.text[start:end]:
            return None
        # `x.cpu().to(device)` makes a copy even of what is on `device` already, which `x.to(device)` does not.
        return Fix("Drop the first move", (Edit(start, end, ""),), "unsafe" if first.to_cpu else "safe")


def _is_non_blocking(arg: cst.Arg) -> bool:
    return arg.keyword is not None and arg.keyword.value == "non_blocking"
