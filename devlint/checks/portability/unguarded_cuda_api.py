"""TDL702 unguarded-cuda-api and TDL703 unguarded-pin-memory: calls that raise where there is no accelerator."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace, statement_of
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, keyword_is, string_value
from devlint.semantics.flow.api import LIKE
from devlint.semantics.tree import dotted
from devlint.units import Unit

_RAISING = frozenset(
    f"torch.cuda.{name}"
    for name in "synchronize current_device get_device_name get_device_properties get_device_capability set_device Stream "
    "Event mem_get_info reset_peak_memory_stats current_stream utilization".split()
)
# Code written for one kind of device, and tests that are run on it.
_FOLDERS = re.compile(r"kernels?|csrc|contrib|ops|extensions?|\w*triton\w*|\w*cuda\w*|tests?|benchmarks?")
_FILES = re.compile(r"test_|.*_test\.py$|.*cuda|.*ddp|.*dist")
_ABOUT_DEVICES = re.compile(r"cuda|gpu|device|accelerat|rank|distributed|world|nccl|backend|ddp|parallel", re.I)
_FALLBACK = re.compile(
    r"""is_available\(\)[^\n]*\belse\b|cuda[^\n]*\belse[^\n]*["']cpu["']|["']cpu["'][^\n]*\belse[^\n]*cuda|no[-_]cuda"""
)

_COMMENT = re.compile(r"#.*")


class UnguardedCudaApi(Check):
    rules = (
        Rule(
            "TDL702",
            "unguarded-cuda-api",
            "a call of `torch.cuda` that raises without CUDA, in a file that runs without",
            fix="unsafe",
        ),
        Rule(
            "TDL703",
            "unguarded-pin-memory",
            "memory pinned without asking, in a file that runs without an accelerator",
            fix="unsafe",
        ),
    )
    triggers = (("cuda", "pin_memory"),)
    patterns = (r"cuda\.(?:" + "|".join(sorted(name.rpartition(".")[2] for name in _RAISING)) + r")\(|pin_memory",)

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only files that say themselves that they run on a CPU, too."""
        if not super().wants(unit, names):  # type: ignore[arg-type]
            return False
        text = _COMMENT.sub("", unit.source.text)
        return _FALLBACK.search(text) is not None and "nccl" not in text and "triton" not in text

    def visit_Call(self, node: cst.Call) -> None:
        folder, name = self.file.place
        if _FOLDERS.fullmatch(folder) or _FILES.match(name):
            return
        qualified = self.name(node.func)
        if qualified in _RAISING:
            if not self._guarded(node):
                self.report(
                    node,
                    "TDL702",
                    f"`{self.code(node.func)}` raises where there is no CUDA, and this file runs there, too; ask first: "
                    "`if torch.cuda.is_available():`",
                    fix=self._fix(node),
                )
            return
        pinned = (
            isinstance(node.func, cst.Attribute)
            and node.func.attr.value == "pin_memory"
            and not node.args
            and not qualified
        )
        if pinned or (qualified in FACTORIES | LIKE and keyword_is(node, "pin_memory", "True")):
            if self._guarded(node) or (pinned and not self._is_tensor(node)):
                return
            arg = argument(node, "pin_memory")
            spelled, needs = self.file.names.spell("torch.cuda.is_available")
            fix = (
                Fix("Pin where there is CUDA", (replace(self.unit, arg.value, f"{spelled}()"),), "unsafe", needs)
                if arg
                else None
            )
            self.report(
                node,
                "TDL703",
                "pinning memory raises where there is no accelerator, and this file runs there, too; pin only "
                "`if torch.cuda.is_available()`",
                fix=fix,
            )

    def _is_tensor(self, node: cst.Call) -> bool:
        """Whether what is pinned is surely made by torch."""
        assert isinstance(node.func, cst.Attribute)
        made = node.func.value
        return isinstance(made, cst.Call) and self.name(made.func) in FACTORIES | {"torch.from_numpy"}

    def _guarded(self, node: cst.CSTNode) -> bool:
        """Whether a test, an attempt, an exit before, or every caller sees to it that there is CUDA."""
        child, above = node, self.parent(node)
        while above is not None:
            if isinstance(above, cst.IfExp) and child is not above.test:
                other = above.orelse if child is above.body else above.body
                if string_value(other) == "cpu":
                    return True
            if isinstance(above, (cst.If, cst.IfExp, cst.BooleanOperation, cst.While, cst.Assert)):
                if _ABOUT_DEVICES.search(self.unit.module.code_for_node(getattr(above, "test", above))):
                    if (
                        not isinstance(above, (cst.If, cst.IfExp))
                        or child is not above.test
                        or isinstance(above, cst.IfExp)
                    ):
                        return True
            elif isinstance(above, (cst.Try, cst.Lambda)):
                return True
            elif isinstance(above, (cst.FunctionDef, cst.ClassDef)):
                if _ABOUT_DEVICES.search(above.name.value) or any(
                    _ABOUT_DEVICES.search(self.unit.module.code_for_node(item.decorator)) for item in above.decorators
                ):
                    return True
            if isinstance(above, (cst.IndentedBlock, cst.Module)) and self._left_before(above, child):
                return True
            child, above = above, self.parent(above)
        function = self.enclosing(node, cst.FunctionDef)
        return function is not None and self._called_with_care(function)

    def _left_before(self, block: cst.IndentedBlock | cst.Module, child: cst.CSTNode) -> bool:
        """Whether the block was left before, where a test about devices told so."""
        for statement in block.body:
            if statement is child:
                return False
            if isinstance(statement, cst.If) and _ABOUT_DEVICES.search(self.unit.module.code_for_node(statement.test)):
                if re.search(
                    r"\b(?:return|raise|exit|continue|skip)\b", self.unit.module.code_for_node(statement.body)
                ):
                    return True
            if isinstance(statement, cst.SimpleStatementLine) and re.search(
                r"assert[^\n]*(?:cuda|gpu|device)|\.cuda\(|[\"']cuda|set_device",
                self.unit.module.code_for_node(statement),
            ):
                # What comes before needs CUDA as well, or makes sure of it: other rules speak of that.
                return True
        return False

    def _called_with_care(self, function: cst.FunctionDef) -> bool:
        """Whether the file calls the function, and always under a test about devices."""
        name = function.name.value
        calls = [
            (other, unit)
            for unit in self.file.units
            if name in unit.words
            for other in unit.below(unit.module)
            if isinstance(other, cst.Call) and dotted(other.func).rpartition(".")[2] == name
        ]
        return bool(calls) and all(self._under_a_test(call, unit) for call, unit in calls)

    def _under_a_test(self, call: cst.CSTNode, unit: Unit) -> bool:
        above = unit.parents.get(call)
        while above is not None:
            if isinstance(above, (cst.If, cst.IfExp)) and _ABOUT_DEVICES.search(unit.module.code_for_node(above.test)):
                return True
            above = unit.parents.get(above)
        return False

    def _fix(self, node: cst.Call) -> Fix | None:
        """Put the guard before a call that is a statement of its own."""
        statement = statement_of(self.unit, node)
        if not isinstance(statement, cst.Expr) or statement.value is not node:
            return None
        line = self.parent(statement)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return None
        spelled, needs = self.file.names.spell("torch.cuda.is_available")
        start, _ = self.unit.offsets(node)
        place = self.unit.span(node)
        indent = self.file.source.line(place.line)[: place.column]
        if indent.strip() or "\n" in self.code(node):
            return None
        step = "\t" if "\t" in indent else "    "
        text = f"if {spelled}():{self.file.source.newline}{indent}{step}"
        return Fix("Ask for CUDA first", (Edit(start, start, text),), "unsafe", needs)
