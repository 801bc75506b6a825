"""TDL212 cuda-timing-without-sync: the clock is read before the device has done what is measured."""

from __future__ import annotations

from functools import cached_property

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.imports import Names
from devlint.semantics.project import imported_names
from devlint.semantics.timing import CLOCKS, Region, loops_in, regions, repeats
from devlint.semantics.training import is_backward
from devlint.semantics.tree import dotted
from devlint.semantics.waits import Waits
from devlint.units import Unit, UnitTooDeep

_ELSEWHERE = frozenset(("CUDA_LAUNCH_BLOCKING", "torch_xla"))
"""Words of files whose device does not run behind the host's back, or is asked for its work by other means."""


class CudaTimingWithoutSync(Check):
    rules = (
        Rule(
            "TDL212",
            "cuda-timing-without-sync",
            "work on the device is timed by the host's clock, and nothing waits for it",
            default=False,
        ),
    )
    patterns = (r"-", r"\(")

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit reads a clock and takes a difference."""
        return super().wants(unit, names) and not unit.words.isdisjoint(names.words_for(CLOCKS))

    def finish(self) -> None:
        """Judge the timed regions of the file once the callers of its functions are known."""
        words = self.file.words
        if words.isdisjoint(("cuda", "device", "xpu", "mps", "gpu")) or not words.isdisjoint(_ELSEWHERE):
            return
        waits = Waits(self.file)
        for unit in self.file.units:
            if self.wants(unit, self.file.names):
                try:
                    for region in regions(unit, self.file.names):
                        if not waits.surely(region.nodes, unit):
                            self._judge(region, unit, waits)
                except UnitTooDeep:
                    continue

    def _judge(self, region: Region, unit: Unit, waits: Waits) -> None:
        work = [node for node in region.nodes if node in self._work]
        if not work or self._goes_through_data(region, unit):
            return
        # A loss is a moment's work: where something waits for the model, the figure is right but for that.
        main = [node for node in work if not self._is_loss(node, unit)] or work
        after = region.nodes[region.nodes.index(main[-1]) + 1 :]
        if waits.perhaps(after, unit, self._work & set(region.nodes)):
            return
        code = unit.code(work[0])
        shown = f" (`{code}`)" if len(code) <= 60 and "\n" not in code else ""
        self.report(
            region.stop,
            "TDL212",
            f"the clock is read while the device may still be at the work of line {unit.span(work[0]).line}{shown}, so that "
            "what is measured is how long it takes to ask for it; call `torch.accelerator.synchronize()`, or "
            "`torch.cuda.synchronize()`, before both reads",
            evidence=[(region.start, "the first read of the clock"), (work[0], "work on the device")],
            unit=unit,
        )

    @cached_property
    def _work(self) -> set[cst.CSTNode]:
        """The work of all units that hold a timed region, also as their callers hand them values."""
        from devlint.semantics.device_work import DeviceWork

        world = DeviceWork(self.file)
        timed = {unit.name for unit in self.file.units if self.wants(unit, self.file.names)}
        wanted = timed | imported_names(self.file.source.path, self.file.names)
        for unit in self.file.units:
            if unit.name in timed or not unit.words.isdisjoint(wanted):
                try:
                    world.watch(unit)
                except UnitTooDeep:
                    continue
        return world.work

    def _goes_through_data(self, region: Region, unit: Unit) -> bool:
        """Whether a loop of the region trains, or does its work on something new each time: an epoch, an evaluation."""
        for loop in loops_in(region):
            inside = unit.below(loop)
            if isinstance(loop, (cst.For, cst.While)) or not self._work.isdisjoint(inside):
                if not repeats(unit, loop) or any(is_backward(node) for node in inside):
                    return True
        return False

    def _is_loss(self, node: cst.CSTNode, unit: Unit) -> bool:
        return isinstance(node, cst.Call) and (
            api.LOSS_NAME.search(dotted(node.func)) is not None
            or self.file.names.qualified(node.func, unit) in api.LOSSES
        )
