"""TDL302 worker-option-without-workers and TDL303 persistent-workers-maybe-zero: options that need workers."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import has_unpacking, remove_argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.data_loader import DATA_LOADER, is_literal, is_set, option
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted

_NEED_WORKERS = ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout")


class WorkerOptions(Check):
    rules = (
        Rule(
            "TDL302",
            "worker-option-without-workers",
            "a DataLoader option that needs worker processes, without any",
            fix="safe",
        ),
        Rule(
            "TDL303",
            "persistent-workers-maybe-zero",
            "`persistent_workers` or `prefetch_factor` where `num_workers` may be 0",
            fix="safe",
        ),
    )
    triggers = (("DataLoader",), _NEED_WORKERS)

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != DATA_LOADER or has_unpacking(node):
            return
        workers = option(node, "num_workers")
        if workers is None or is_literal(workers, "0"):
            for name in _NEED_WORKERS:
                arg = option(node, name)
                if arg is not None and self._surely_set(arg, name):
                    self._report_without(node, arg, name)
        elif not isinstance(workers.value, cst.Integer) and self._may_be_zero(workers.value):
            for name in ("persistent_workers", "prefetch_factor"):
                arg = option(node, name)
                if arg is not None and self._set_regardless(arg, name) and not self._guarded(node, workers.value):
                    self._report_maybe(arg, name, workers.value)

    def _surely_set(self, arg: cst.Arg, name: str) -> bool:
        if name == "persistent_workers":
            return is_literal(arg, "True")
        if name == "multiprocessing_context":
            return is_set(arg) and isinstance(arg.value, cst.SimpleString)
        return is_set(arg) and isinstance(arg.value, (cst.Integer, cst.Float))

    def _report_without(self, call: cst.Call, arg: cst.Arg, name: str) -> None:
        edit = remove_argument(self.unit, call, arg)
        error = "an AssertionError when it is iterated" if name == "timeout" else "a ValueError"
        self.report(
            arg,
            "TDL302",
            f"`{name}` needs worker processes, and `num_workers` is 0: this is {error}; give `num_workers`, drop the option, "
            "or let devlint.runtime.make_loader choose both",
            fix=Fix(f"Drop `{name}`", (edit,), "safe") if edit else None,
        )

    def _set_regardless(self, arg: cst.Arg, name: str) -> bool:
        """Whether the option is on whatever the number of workers: a literal, or a parameter that defaults to it."""
        if is_literal(arg, "True") if name == "persistent_workers" else isinstance(arg.value, cst.Integer):
            return True
        default = self._default(arg.value)
        wanted = cst.Name if name == "persistent_workers" else cst.Integer
        return isinstance(default, wanted) and (name == "prefetch_factor" or default.value == "True")

    def _default(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The default of the parameter that `node` names."""
        function = self.enclosing(node, cst.FunctionDef)
        if function is None or not isinstance(node, cst.Name):
            return None
        params = (*function.params.params, *function.params.kwonly_params)
        return next((param.default for param in params if param.name.value == node.value), None)

    def _may_be_zero(self, node: cst.BaseExpression) -> bool:
        """Whether the file shows that the number of workers can be 0: an open parameter, an option, a choice."""
        if isinstance(node, cst.IfExp):
            return any(
                (isinstance(part, cst.Integer) and part.value == "0") or self._may_be_zero(part)
                for part in (node.body, node.orelse)
            )
        if isinstance(node, cst.Call):
            return dotted(node.func) in ("min", "os.cpu_count", "cpu_count") and "max(" not in self.code(node)
        if isinstance(node, cst.BinaryOperation):
            return isinstance(node.operator, cst.FloorDivide)
        name = dotted(node)
        if not name:
            return False
        function = self.enclosing(node, cst.FunctionDef)
        if function is not None and isinstance(node, cst.Name):
            params = (*function.params.params, *function.params.kwonly_params, *function.params.posonly_params)
            if any(param.name.value == name for param in params):
                return not self._validated(name)
        if isinstance(node, cst.Name) and self._is_constant_zero(node):
            return True
        return self._is_option(name) and not self._validated(name)

    def _is_constant_zero(self, node: cst.Name) -> bool:
        """Whether the name is a constant of the file, and that constant is 0."""
        origins = Origins(self.file).of(node, self.unit)
        return bool(origins) and all(
            origin is not None and isinstance(origin.node, cst.Integer) and origin.node.value == "0"
            for origin in origins
        )

    def _is_option(self, name: str) -> bool:
        """Whether a dotted name is an integer option that this file's argument parser takes."""
        option_name = re.escape(name.rpartition(".")[2]).replace("_", "[-_]")
        pattern = rf"""add_argument\(\s*(?:["']-\w["'],\s*)?["']--{option_name}["']"""
        return "." in name and re.search(pattern, self.file.source.text) is not None

    def _validated(self, name: str) -> bool:
        """Whether the file compares the value with a number anywhere, so that somebody thought of 0."""
        last = re.escape(name.rpartition(".")[2])
        return re.search(rf"\b{last}\b\s*(?:[<>]=?|==|!=)\s*[01]\b|max\(\s*1\s*,", self.file.source.text) is not None

    def _guarded(self, call: cst.Call, workers: cst.BaseExpression) -> bool:
        code = self.code(workers)
        above = self.parent(call)
        while above is not None:
            if isinstance(above, (cst.If, cst.IfExp)) and code in self.code(above.test):
                return True
            above = self.parent(above)
        return False

    def _report_maybe(self, arg: cst.Arg, name: str, workers: cst.BaseExpression) -> None:
        code, value = self.code(workers), self.code(arg.value)
        simple = isinstance(workers, (cst.Name, cst.Attribute))
        guarded = f"{code} > 0" if value == "True" else f"{value} and {code} > 0"
        text = guarded if name == "persistent_workers" else f"{value} if {code} > 0 else None"
        edit: Edit = replace(self.unit, arg.value, text)
        self.report(
            arg,
            "TDL303",
            f"`{name}` with `num_workers={code}` is a ValueError when that is 0; write `{name}={text}`, or use "
            "devlint.runtime.make_loader",
            fix=Fix(f"Write `{name}={text}`", (edit,), "safe") if simple else None,
        )
