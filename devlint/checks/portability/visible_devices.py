"""TDL709 visible-devices-too-late: the GPUs are chosen after CUDA has looked at them."""

from __future__ import annotations

import re
from collections.abc import Callable

from devlint.checks.base import Check, Rule
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
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

    def finish(self) -> None:
        """Look at the module level, which may use CUDA in one stretch of it, and choose the devices in another."""
        first = None
        for unit in self.file.units:
            if not unit.name:
                self.unit = unit
                first = self._block(unit.module, first)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._block(node.body, None)

    def _block(
        self, body: cst.BaseSuite | cst.Module, first: tuple[Unit, cst.CSTNode] | None
    ) -> tuple[Unit, cst.CSTNode] | None:
        """Report the settings that come behind the first use of CUDA, and give the latter back."""
        for statement in body.body:
            if first is not None:
                for inner in code_below(self.unit, statement):
                    if self._sets(inner) or self._calls(inner, self._sets):
                        self._report(inner, *first)
            elif isinstance(statement, cst.SimpleStatementLine):
                first = self._first_use(statement)
            elif isinstance(statement, cst.If) and "__main__" in self.code(statement.test):
                # It runs where the module does, one statement after the other.
                self._block(statement.body, None)
        return first

    def _first_use(self, statement: cst.CSTNode) -> tuple[Unit, cst.CSTNode] | None:
        for inner in code_below(self.unit, statement):
            if self._uses(inner) or self._calls(inner, self._uses):
                return self.unit, inner
        return None

    def _calls(self, node: cst.CSTNode, does: Callable[[cst.CSTNode], bool]) -> bool:
        """Whether a call runs a function of this file that does something, in any case."""
        found = self.file.placement.world.function(dotted(node.func)) if isinstance(node, cst.Call) else None
        if found is None:
            return False
        outer, self.unit = self.unit, found[0]
        lines = [part for part in found[1].body.body if isinstance(part, cst.SimpleStatementLine)]
        done = any(does(inner) for line in lines for inner in code_below(self.unit, line))
        self.unit = outer
        return done

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
