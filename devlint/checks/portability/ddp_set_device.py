"""TDL707 ddp-missing-set-device: every rank on GPU 0."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.guards import choices
from devlint.units import Unit

_PLACED = re.compile(
    r"set_device|set_device_index|CUDA_VISIBLE_DEVICES|cuda:\{|cuda:%|[\"']cuda:[\"']\s*\+|device\(\s*[\"']cuda[\"']\s*,|"
    r"\.cuda\(\s*[^)\s]|torch\.cuda\.device\(|deepspeed|accelerat"
)


class DdpSetDevice(Check):
    rules = (
        Rule(
            "TDL707",
            "ddp-missing-set-device",
            'processes of a group move to a bare "cuda", which is GPU 0 for each of them',
        ),
    )
    triggers = (("cuda",),)
    patterns = (r"\.cuda\(\)|[\"']cuda[\"']",)

    def _starts(self, unit: Unit, scope: cst.CSTNode) -> bool:
        """Whether the process group is started in `scope`, and not only where nobody did before."""
        return "init_process_group" in unit.words and any(
            self.file.names.qualified(call.func, unit) == "torch.distributed.init_process_group"
            and not any("is_initialized" in unit.code(choice.test) for choice in choices(unit, call))
            for call in unit.below(scope, cst.Call)
        )

    def visit_Call(self, node: cst.Call) -> None:
        if not isinstance(node.func, cst.Attribute) or "init_process_group" not in self.file.words:
            return
        bare = node.func.attr.value == "cuda" and not node.args
        if node.func.attr.value == "to":
            bare = len(node.args) == 1 and string_value(node.args[0].value) == "cuda"
        text = self.file.source.text
        if not bare or "nccl" not in text or _PLACED.search(text) or self.findings:
            return
        if re.search(r"\.to\(\s*(?:\w+\.)*\w*rank", text):
            return
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        if not self._starts(self.unit, scope):
            # Whoever started the group may have chosen the device there, unless this is all there is.
            if "__main__" not in text or not any(self._starts(unit, unit.module) for unit in self.file.units):
                return
        self.report(
            node,
            "TDL707",
            "every process of the group puts this on GPU 0, for nothing here selects another: call `torch.cuda.set_device(local_rank)` "
            "first, or use devlint.runtime.distributed(), which gives each rank its device",
        )
