"""TDL514 ddp-broadcast-buffers and TDL516 data-parallel: the wrappers that train on several devices."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import argument
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.units import Unit

_DDP = "torch.nn.parallel.DistributedDataParallel"
_DP = "torch.nn.DataParallel"
_FUNCTION = "torch.nn.parallel.data_parallel"


class DataParallelWrappers(Check):
    rules = (
        Rule("TDL514", "ddp-broadcast-buffers", "`broadcast_buffers=` of DistributedDataParallel", fix="unsafe"),
        Rule(
            "TDL516", "data-parallel", "`nn.DataParallel`, which is slower than DistributedDataParallel", default=False
        ),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit names the argument, or DataParallel."""
        return "broadcast_buffers" in unit.words or not unit.words.isdisjoint(names.words_for((_DP, _FUNCTION)))

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func)
        if name in (_DP, _FUNCTION, "torch.nn.parallel.data_parallel.data_parallel"):
            self.report(
                node.func,
                "TDL516",
                "`DataParallel` copies the model to each GPU in each step, from one process; "
                "`torch.nn.parallel.DistributedDataParallel` with a process for each GPU is faster, on one machine, too",
            )
        elif name == _DDP and self.file.settings.targets(2, 13):
            self._buffers(node)

    def _buffers(self, call: cst.Call) -> None:
        arg = argument(call, "broadcast_buffers")
        if arg is None or arg.keyword is None or argument(call, "forward_sync_buffers") is not None:
            return
        if is_compatibility_code(self.unit, call) or (isinstance(arg.value, cst.Name) and arg.value.value == "None"):
            return
        edit = Edit(*self.unit.offsets(arg.keyword), "forward_sync_buffers")
        self.report(
            arg,
            "TDL514",
            "`broadcast_buffers` is deprecated since torch 2.13; use `forward_sync_buffers`, which, set to False, still "
            "synchronises the buffers once when the model is wrapped",
            fix=Fix("Use `forward_sync_buffers`", (edit,), "unsafe"),
        )
