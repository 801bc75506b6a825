"""TDL504, TDL512, TDL513, TDL515, TDL517: deprecated and removed names, by the tables."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.checks.deprecated.argument_table import MISSING
from devlint.checks.deprecated.rewrites import rewrite
from devlint.checks.deprecated.table import SYMBOLS, Symbol
from devlint.edits import add_argument, argument, has_unpacking, prepend_argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names, canonical
from devlint.semantics.tree import dotted
from devlint.units import Unit

_OWNERS: dict[str, set[str]] = {}
for _name in (*SYMBOLS, *MISSING):
    _OWNERS.setdefault(_name.rpartition(".")[2], set()).add(_name.rpartition(".")[0])
_ATTRIBUTE = re.compile(r"\b(\w+)(?=\s*\.\s*(\w+))")


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
        if names.stars or not unit.words.isdisjoint(names.aliases_of((*SYMBOLS, *MISSING))):
            return True
        if unit.words.isdisjoint(_OWNERS):
            return False
        # `x.grad` and `x.norm` are everywhere: it must be the attribute of what the name belongs to.
        for match in _ATTRIBUTE.finditer(unit.text):
            owners = _OWNERS.get(match[2], ())
            if any(owner.rpartition(".")[2] == match[1] for owner in owners):
                return True
            if any(canonical(target) in owners for target in names.aliases.get(match[1], ())):
                return True
        return False

    def visit_Call(self, node: cst.Call) -> None:
        """What must be given an argument by now."""
        entry = MISSING.get(self.name(node.func))
        if entry is None or argument(node, entry.keyword, entry.position) is not None:
            return
        hidden = ("**",) if entry.position is None else ("*", "**")
        if any(arg.star in hidden for arg in node.args) or is_compatibility_code(self.unit, node):
            return
        edit = None
        if entry.fix and node.args and self.file.settings.targets(*entry.gate):
            edit = add_argument(self.unit, node, entry.fix)
        fix = Fix(f"Add `{entry.fix}`", (edit,), "safe") if edit else None
        self.report(node.func, "TDL517", entry.why, fix=fix)

    def visit_Name(self, node: cst.Name) -> None:
        self._reference(node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._reference(node)

    def _reference(self, node: cst.Name | cst.Attribute) -> None:
        above = self.parent(node)
        if isinstance(above, (cst.ImportAlias, cst.ImportFrom, cst.AsName)):
            return
        if isinstance(above, cst.Attribute) and (
            above.attr is node or self.enclosing(node, cst.ImportAlias, cst.ImportFrom)
        ):
            return
        if isinstance(above, cst.AssignTarget) or self._patches(node):
            return
        name = self.name(node)
        call = above if isinstance(above, cst.Call) and above.func is node else None
        entry = SYMBOLS.get(name)
        if entry is None or is_compatibility_code(self.unit, node):
            return
        state = f"was removed in torch {entry.removed}" if entry.removed else f"is deprecated since torch {entry.since}"
        use = f"; use `{_successor(entry)}`" if entry.new else ""
        note = f"; {entry.note}" if entry.note else ""
        self.report(node, entry.code, f"`{entry.old}` {state}{use}{note}", fix=self._fix(node, call, entry))

    def _patches(self, node: cst.CSTNode) -> bool:
        """Whether `node` is what an assignment puts into torch, as in `torch.new = torch.old`: code for several releases."""
        above = self.parent(node)
        return isinstance(above, cst.Assign) and any(
            isinstance(target.target, cst.Attribute) and self.name(target.target.value).startswith("torch")
            for target in above.targets
        )

    def _fix(self, node: cst.Name | cst.Attribute, call: cst.Call | None, entry: Symbol) -> Fix | None:
        if not entry.new or not self.file.settings.targets(*entry.gate):
            return None
        if isinstance(self.parent(node), cst.DictElement):
            # A table of functions by name, of which the name would be left as it was.
            return None
        spelled, needs = self.file.names.spell(entry.new)
        edits: list[Edit | None] = [replace(self.unit, node, spelled)]
        level = "unsafe" if entry.fix == "unsafe" else "safe"
        rewritten = rewrite(entry.old, call, self.unit, self.file) if call is not None else None
        if rewritten is not None:
            edits += rewritten
            needs += ("torch",) if any(edit and "torch." in edit.content for edit in edits) else ()
        elif entry.code == "TDL513" and call is None:
            edits = [replace(self.unit, node, spelled + "()")]
        elif entry.fix == "none" or (entry.first and (call is None or has_unpacking(call))):
            return None
        elif entry.first and call is not None:
            edits.append(prepend_argument(self.unit, call, entry.first))
        made = tuple(edit for edit in edits if edit is not None)
        root = dotted(node).partition(".")[0]
        gone = () if self.file.names.aliases.get(root) == {"torch"} else (root,)
        fix = Fix(f"Use `{entry.new}`", made, "safe" if level == "safe" else "unsafe", needs, gone)
        return fix if len(made) == len(edits) else None


def _successor(entry: Symbol) -> str:
    """How a message writes the call of the new name."""
    return entry.new + (f"({entry.first}, …)" if entry.first else "()" if entry.code == "TDL513" else "")
