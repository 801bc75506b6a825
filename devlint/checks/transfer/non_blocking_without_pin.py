"""TDL203 non-blocking-without-pin: `non_blocking=True` on batches that the loader does not pin."""

from __future__ import annotations

import re

from devlint.checks.base import File, Rule
from devlint.checks.meeting import MeetCheck, evidence_of
from devlint.edits import add_argument, has_unpacking, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import keyword_is
from devlint.semantics.data_loader import DATA_LOADER, is_literal, option
from devlint.semantics.flow.meets import Move
from devlint.semantics.flow.values import Step
from devlint.semantics.origins import Origins

_OWN_COPIES = re.compile(r"prefetch|device|cuda|pin|prepare|setup", re.I)


class NonBlockingWithoutPin(MeetCheck):
    rules = (
        Rule(
            "TDL203",
            "non-blocking-without-pin",
            "a loader without `pin_memory=True`, whose batches are moved with `non_blocking=True`",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("non_blocking",), ("to", "cuda"), ("for", "next", "iter"))
    patterns = (r"non_blocking\s*=\s*True",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    def finish(self) -> None:
        """Look at every move of a batch, or of a part of one."""
        if "DataLoader" not in self.file.words:
            return
        self.interpret_callers()
        for move in self.file.placement.world.notes.moves:
            loader = self._pageable_loader(move)
            if loader is not None:
                self._report(move, loader)

    def _pageable_loader(self, move: Move) -> Step | None:
        """The call that built the loader from which the moved value was drawn, where its batches are surely not pinned."""
        place = move.result.place
        if move.value.source != "element" or place is None or place.kind != "accelerator" or "mps" in place.symbol:
            return None
        if not keyword_is(move.node, "non_blocking", "True"):
            return None
        built = [step for step in move.value.steps if isinstance(step.node, cst.Call)] or self._looped_over(move)
        for step in built:
            call = step.node
            if isinstance(call, cst.Call) and self.file.names.qualified(call.func, step.unit) == DATA_LOADER:
                pin = option(call, "pin_memory")
                return step if not has_unpacking(call) and (pin is None or is_literal(pin, "False")) else None
        return None

    def _looped_over(self, move: Move) -> list[Step]:
        """What built the loader that the loop's source wraps, as in `for x in meter.log_every(loader, 10)`."""
        source = move.loop.iter if move.loop is not None else None
        if not isinstance(source, cst.Call) or _OWN_COPIES.search(move.unit.code(source)):
            return []
        for arg in source.args:
            origins = self._origins.of(arg.value, move.unit)
            calls = [Step(origin.node, origin.unit, "") for origin in origins if origin is not None]
            if len(calls) == len(origins) == 1 and isinstance(calls[0].node, cst.Call):
                if self.file.names.qualified(calls[0].node.func, calls[0].unit) == DATA_LOADER:
                    return calls
        return []

    def _report(self, move: Move, loader: Step) -> None:
        call, unit = loader.node, loader.unit
        assert isinstance(call, cst.Call)
        pin = option(call, "pin_memory")
        if pin is None:
            edit = add_argument(unit, call, "pin_memory=True")
        else:
            edit = replace(unit, pin.value, "True")
        line = move.unit.span(move.node).line
        self.accuse(
            "TDL203",
            call,
            unit,
            f"this loader's batches are moved with `non_blocking=True` (line {line}), and it does not pin them: such a copy waits "
            "all the same; add `pin_memory=True`, or use devlint.runtime.DeviceLoader(loader, device)",
            Fix("Pin the batches: `pin_memory=True`", (edit,), "unsafe") if edit else None,
            [evidence_of(move.unit, move.node, "a batch, or a part of it, is moved here")],
        )
