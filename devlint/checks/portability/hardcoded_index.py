"""TDL706 hardcoded-device-index: every process of a group on the same numbered GPU."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, string_value
from devlint.semantics.training import code_below

_GROUP = frozenset(("torch.distributed.init_process_group", "torch.nn.parallel.DistributedDataParallel"))
# Each process then sees a GPU of its own as the first, or there is one process, or the GPU is shared on purpose.
_ALONE = re.compile(r"CUDA_VISIBLE_DEVICES|gloo|(?:world_size|nprocs)\s*=\s*1\b|deepspeed|accelerat|is_initialized")
_BRANCHES = ("If", "IfExp", "ExceptHandler", "Match")


class HardcodedIndex(Check):
    rules = (
        Rule(
            "TDL706",
            "hardcoded-device-index",
            "a numbered GPU spelled out in a function that every process of a group runs",
            default=False,
        ),
    )
    triggers = (("cuda", "device_ids"), ("init_process_group", "DistributedDataParallel", "DDP", "parallel"))
    patterns = (r"cuda:\d|\(\s*(?:device\s*=\s*)?\d+\s*\)|device_ids",)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if _ALONE.search(self.file.source.text):
            return
        calls = [inner for inner in code_below(self.unit, node.body) if isinstance(inner, cst.Call)]
        group = next((call for call in calls if self.name(call.func) in _GROUP), None)
        if group is None or self._chosen(group, node):
            return
        fixed = [(call, index) for call in calls if (index := self._index(call)) is not None]
        if len({index for _, index in fixed}) != 1:
            # A model spread over several GPUs names them all.
            return
        for call, index in fixed:
            if not self._chosen(call, node):
                self.report(
                    call,
                    "TDL706",
                    f"every process of the group uses GPU {index} here; NCCL refuses two ranks on one GPU, and its memory is shared by all: "
                    'use `f"cuda:{local_rank}"`, or devlint.runtime.distributed(), which gives each rank its device',
                    evidence=[(group, "this runs in several processes")],
                )

    def _chosen(self, node: cst.CSTNode, function: cst.FunctionDef) -> bool:
        """Whether a condition stands between the function and the node: it may pick one rank, or no group at all."""
        above = self.parent(node)
        while above is not None and above is not function:
            if type(above).__name__ in _BRANCHES:
                return True
            above = self.parent(above)
        return False

    def _index(self, call: cst.Call) -> int | None:
        """The GPU that a call names by a literal."""
        name = self.name(call.func)
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name == "torch.nn.parallel.DistributedDataParallel":
            ids = argument(call, "device_ids", 1)
            if ids is None or not isinstance(ids.value, (cst.List, cst.Tuple)) or len(ids.value.elements) != 1:
                return None
            return _literal(ids.value.elements[0].value, bare=True)
        if name in FACTORIES:
            place = argument(call, "device")
            return None if place is None else _literal(place.value, bare=True)
        if name == "torch.device" and len(call.args) == 2:
            return _literal(call.args[1].value, bare=True) if string_value(call.args[0].value) == "cuda" else None
        if name not in ("torch.device", "torch.cuda.set_device") and method not in ("to", "cuda"):
            return None
        place = argument(call, "device", 0)
        return None if place is None else _literal(place.value, bare=method in ("cuda", "to", "set_device"))


def _literal(node: cst.BaseExpression, *, bare: bool) -> int | None:
    if isinstance(node, cst.Integer) and bare:
        return int(node.value)
    match = re.fullmatch(r"cuda:(\d+)", string_value(node) or "")
    return int(match[1]) if match else None
