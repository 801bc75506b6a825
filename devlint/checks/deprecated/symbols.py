"""TDL504, TDL512, TDL513, TDL515, TDL517: deprecated and removed names, by the table."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.checks.deprecated.table import SYMBOLS, Symbol
from devlint.edits import add_argument, argument, has_unpacking, prepend_argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_MESHGRID = "torch.meshgrid"
_LAST = sorted({name.rpartition(".")[2] for name in (*SYMBOLS, _MESHGRID)})
_ATTRIBUTE = re.compile(rf"\.\s*(?:{'|'.join(_LAST)})\b")


class DeprecatedSymbols(Check):
    rules = (
        Rule(
            "TDL504",
            "legacy-autocast-query",
            "an autocast query or setter for one device, such as `get_autocast_gpu_dtype`",
            fix="safe",
        ),
        Rule("TDL512", "cuda-memory-renames", "the old names of `torch.cuda`'s memory statistics", fix="safe"),
        Rule("TDL513", "torch-has-attrs", "`torch.has_cuda` and its like", fix="safe"),
        Rule("TDL515", "accelerator-renames", "renamed functions of `torch.accelerator`", fix="safe"),
        Rule("TDL517", "deprecated-symbol", "any other deprecated or removed name of torch", fix="safe"),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit holds one of the names of the table, or an alias of one."""
        if names.stars or not unit.words.isdisjoint(names.aliases_of((*SYMBOLS, _MESHGRID))):
            return True
        return _ATTRIBUTE.search(unit.text) is not None

    def visit_Name(self, node: cst.Name) -> None:
        self._reference(node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._reference(node)

    def _reference(self, node: cst.Name | cst.Attribute) -> None:
        above = self.parent(node)
        if isinstance(above, (cst.Attribute, cst.ImportAlias, cst.ImportFrom, cst.AsName)):
            return
        name = self.name(node)
        call = above if isinstance(above, cst.Call) and above.func is node else None
        if name == _MESHGRID and call is not None:
            self._meshgrid(call)
        entry = SYMBOLS.get(name)
        if entry is None or is_compatibility_code(self.unit, node):
            return
        state = f"was removed in torch {entry.removed}" if entry.removed else f"is deprecated since torch {entry.since}"
        note = f"; {entry.note}" if entry.note else ""
        self.report(
            node, entry.code, f"`{entry.old}` {state}; use `{self._new(entry)}`{note}", fix=self._fix(node, call, entry)
        )

    def _new(self, entry: Symbol) -> str:
        call = f"({entry.first}, …)" if entry.first.strip() else "()" if entry.code == "TDL513" else ""
        return entry.new + call

    def _fix(self, node: cst.Name | cst.Attribute, call: cst.Call | None, entry: Symbol) -> Fix | None:
        if not self.file.settings.targets(*entry.gate):
            return None
        spelled, needs = self.file.names.spell(entry.new)
        edits: list[Edit | None]
        if entry.code == "TDL513" and call is None:
            edits, level = [replace(self.unit, node, spelled + "()")], "safe"
        elif entry.old == "torch.chain_matmul" and call is not None and self._plain(call):
            first, last = self.unit.offsets(call.args[0])[0], self.unit.offsets(call.args[-1].value)[1]
            edits, level = [replace(self.unit, node, spelled), Edit(first, first, "["), Edit(last, last, "]")], "safe"
        elif entry.old == "torch.cholesky" and call is not None and self._plain(call) and len(call.args) == 1:
            edits, level = [replace(self.unit, node, spelled)], "safe"
        elif entry.fix == "none" or (entry.first and (call is None or has_unpacking(call))):
            return None
        else:
            edits, level = [replace(self.unit, node, spelled)], entry.fix
            if entry.first and call is not None:
                edits.append(prepend_argument(self.unit, call, entry.first))
        made = tuple(edit for edit in edits if edit is not None)
        root = dotted(node).partition(".")[0]
        gone = () if self.file.names.aliases.get(root) == {"torch"} else (root,)
        fix = Fix(f"Use `{entry.new}`", made, "safe" if level == "safe" else "unsafe", needs, gone)
        return fix if len(made) == len(edits) else None

    def _plain(self, call: cst.Call) -> bool:
        return bool(call.args) and not has_unpacking(call) and all(arg.keyword is None for arg in call.args)

    def _meshgrid(self, call: cst.Call) -> None:
        """`torch.meshgrid` without `indexing` warns, and will change its default."""
        if argument(call, "indexing") is not None or any(arg.star == "**" for arg in call.args):
            return
        if is_compatibility_code(self.unit, call):
            return
        edit = add_argument(self.unit, call, 'indexing="ij"') if self.file.settings.targets(1, 10) else None
        self.report(
            call.func,
            "TDL517",
            '`torch.meshgrid` without `indexing` is deprecated since torch 1.10, for its default will change; say `indexing="ij"`, '
            "which is what it does now",
            fix=Fix('Add `indexing="ij"`', (edit,), "safe") if edit else None,
        )
