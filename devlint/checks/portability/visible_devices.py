"""TDL709 visible-devices-too-late: the GPUs are chosen after CUDA has looked at them."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.imports import Names
from devlint.semantics.training import code_below
from devlint.semantics.tree import dotted
from devlint.units import Unit

# These ask the driver's management library, or wait until CUDA starts.
_LAZY = re.compile(
    r"torch\.cuda\.(?:device_count|is_initialized|manual_seed|manual_seed_all|seed|seed_all|empty_cache|amp\..*)"
)


class VisibleDevices(Check):
    rules = (
        Rule(
            "TDL709",
            "visible-devices-too-late",
            "`CUDA_VISIBLE_DEVICES` is set after CUDA was first used",
        ),
    )
    triggers = (("CUDA_VISIBLE_DEVICES",),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._first: tuple[Unit, cst.CSTNode] | None = None
        """The first use of CUDA at the module level."""

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        # The module level may use CUDA in one unit, and choose the devices in another.
        return super().wants(unit, names) or (not unit.name and "cuda" in unit.words)

    def visit_Module(self, node: cst.Module) -> None:
        if not self.unit.name:
            self._first = self._block(node, self._first)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._block(node.body, None)

    def _block(
        self, body: cst.BaseSuite | cst.Module, first: tuple[Unit, cst.CSTNode] | None
    ) -> tuple[Unit, cst.CSTNode] | None:
        """Report the settings that come behind the first use of CUDA, and give the latter back."""
        for statement in body.body:
            if first is not None:
                for inner in code_below(self.unit, statement):
                    if self._sets(inner):
                        self._report(inner, *first)
            elif isinstance(statement, cst.SimpleStatementLine):
                used = next((inner for inner in code_below(self.unit, statement) if self._uses(inner)), None)
                first = (self.unit, used) if used is not None else None
        return first

    def _report(self, node: cst.CSTNode, unit: Unit, used: cst.CSTNode) -> None:
        self.report(
            node,
            "TDL709",
            f"CUDA was used at line {unit.span(used).line} and has counted its devices: this setting comes too late, and "
            "the wrong GPU may be taken; set it before the first CUDA call, best before `import torch`, or in the shell",
            evidence=[(used, "CUDA is used here")] if unit is self.unit else (),
        )

    def _sets(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Assign):
            return False
        target = node.targets[0].target
        if not isinstance(target, cst.Subscript) or dotted(target.value) not in ("os.environ", "environ"):
            return False
        index = target.slice[0].slice
        return isinstance(index, cst.Index) and string_value(index.value) == "CUDA_VISIBLE_DEVICES"

    def _uses(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call):
            return False
        name = self.name(node.func)
        if name.startswith("torch.cuda.") and not _LAZY.fullmatch(name):
            return True
        if not isinstance(node.func, cst.Attribute):
            return False
        moved = (
            node.func.attr.value == "to"
            and bool(node.args)
            and (string_value(node.args[0].value) or "").startswith("cuda")
        )
        return moved or (node.func.attr.value == "cuda" and not node.args)
