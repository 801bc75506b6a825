"""TDL511 pin-memory-device and TDL519 removed-argument: arguments that go, by the table."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.checks.deprecated.argument_table import (
    ARGUMENTS,
    LOSSES,
    SCHEDULERS,
    VERBOSE,
    Argument,
)
from devlint.edits import argument, has_unpacking, remove_argument
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.units import Unit

_KEYWORDS = sorted({entry.keyword for entries in ARGUMENTS.values() for entry in entries} | {"verbose"})
_GIVEN = re.compile(rf"\b(?:{'|'.join(_KEYWORDS)}|size_average|reduce)\s*=|elementwise_mean")
_REDUCTIONS = {(True, True): "mean", (False, True): "sum", (True, False): "none", (False, False): "none"}


class DeprecatedArguments(Check):
    rules = (
        Rule("TDL511", "pin-memory-device", "`pin_memory_device=` of a DataLoader, which is ignored", fix="safe"),
        Rule("TDL519", "removed-argument", "an argument that torch no longer takes, or that does nothing", fix="safe"),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit hands one of the keywords to something."""
        return _GIVEN.search(unit.text) is not None

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func)
        if not name.startswith("torch."):
            return
        entries = ARGUMENTS.get(name, ())
        if name.startswith(SCHEDULERS):
            entries = (VERBOSE,)
        for entry in entries:
            self._given(node, entry)
        if name in LOSSES:
            self._reduction(node)
        if name == "torch.autograd.profiler.profile":
            self._profiler(node)

    def _given(self, call: cst.Call, entry: Argument) -> None:
        arg = argument(call, entry.keyword)
        if arg is None or is_compatibility_code(self.unit, call):
            return
        edit: Edit | None = None
        if entry.fix == "drop":
            edit = remove_argument(self.unit, call, arg)
        elif entry.fix == "rename" and argument(call, entry.new) is None and not has_unpacking(call):
            edit = Edit(*self.unit.offsets(arg.keyword), entry.new) if arg.keyword is not None else None
        title = f"Use `{entry.new}`" if entry.fix == "rename" else f"Drop `{entry.keyword}`"
        self._report(arg, entry.code, entry.why, title, edit, entry.gate)

    def _reduction(self, call: cst.Call) -> None:
        """`size_average=` and `reduce=` of a loss, and the old name of the mean."""
        given = [
            arg for arg in call.args if arg.keyword is not None and arg.keyword.value in ("size_average", "reduce")
        ]
        given = [arg for arg in given if self.code(arg.value) != "None"]
        reduction = argument(call, "reduction")
        if is_compatibility_code(self.unit, call):
            return
        if not given:
            if reduction is not None and string_value(reduction.value) == "elementwise_mean":
                edit = Edit(*self.unit.offsets(reduction.value), '"mean"')
                why = '`reduction="elementwise_mean"` is deprecated since torch 1.0; it is `"mean"`'
                self._report(reduction, "TDL519", why, 'Use `"mean"`', edit, (1, 0))
            return
        values = {
            arg.keyword.value: {"True": True, "False": False}.get(self.code(arg.value)) for arg in given if arg.keyword
        }
        mean, reduce = values.get("size_average", True), values.get("reduce", True)
        why = "`size_average` and `reduce` are deprecated since torch 0.4.1; use `reduction`"
        replaced: Edit | None = None
        dropped = [remove_argument(self.unit, call, arg) for arg in given[1:]]
        if mean is not None and reduce is not None and reduction is None and not has_unpacking(call):
            replaced = Edit(*self.unit.offsets(given[0]), f'reduction="{_REDUCTIONS[mean, reduce]}"')
            if isinstance(given[0].comma, cst.Comma):
                end = self.unit.offsets(given[0].value)[1]
                replaced = Edit(replaced.start, end, replaced.content)
        self._report(given[0], "TDL519", why, "Use `reduction`", replaced, (1, 0), dropped)

    def _profiler(self, call: cst.Call) -> None:
        arg = argument(call, "use_cuda")
        if arg is None or is_compatibility_code(self.unit, call) or self.code(arg.value) == "False":
            return
        why = '`use_cuda` of the profiler is deprecated since torch 2.2; use `use_device="cuda"`'
        edit = None
        if self.code(arg.value) == "True" and argument(call, "use_device") is None:
            start, end = self.unit.offsets(arg)[0], self.unit.offsets(arg.value)[1]
            edit = Edit(start, end, 'use_device="cuda"')
        self._report(arg, "TDL519", why, "Use `use_device`", edit, (2, 2))

    def _report(
        self,
        node: cst.CSTNode,
        code: str,
        why: str,
        title: str,
        edit: Edit | None,
        gate: tuple[int, int],
        more: list[Edit | None] | None = None,
    ) -> None:
        edits = [edit, *(more or [])]
        made = tuple(edit for edit in edits if edit is not None)
        whole = len(made) == len(edits) and self.file.settings.targets(*gate)
        self.report(node, code, why, fix=Fix(title, made, "safe") if whole else None)
