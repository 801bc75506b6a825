"""TDL110 module-device-attribute: modules have no `device`."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.origins import Origin, Origins
from devlint.semantics.tree import dotted


class ModuleDevice(Check):
    rules = (
        Rule(
            "TDL110", "module-device-attribute", "`module.device` of a plain `nn.Module`, which has none", fix="unsafe"
        ),
    )
    triggers = (("device", "is_cuda"),)
    patterns = (r"\.(?:device|is_cuda)\b",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node.attr.value not in ("device", "is_cuda") or not isinstance(node.value, (cst.Name, cst.Attribute)):
            return
        above = self.parent(node)
        if isinstance(above, (cst.AssignTarget, cst.Attribute)) or self.name(node) or dotted(node.value) == "self":
            return
        origins = self._origins.of(node.value, self.unit)
        if not origins or not all(origin is not None and self._is_plain_module(origin) for origin in origins):
            return
        name = self.code(node.value)
        new = f"next({name}.parameters()).{node.attr.value}"
        self.report(
            node,
            "TDL110",
            f"`{name}` is an `nn.Module`, which has no `{node.attr.value}`: this raises an AttributeError; write `{new}`, or "
            "devlint.runtime.module_device(module)",
            fix=Fix(f"Write `{new}`", (replace(self.unit, node, new),), "unsafe"),
        )

    def _is_plain_module(self, origin: Origin) -> bool:
        """Whether the value is built by a class of torch.nn, or by one of this file that defines no such attribute."""
        node = origin.node
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in ("to", "cuda", "cpu", "eval", "train", "float", "half", "double"):
                break
            node = node.func.value
        if not isinstance(node, cst.Call):
            return False
        name = self.file.names.qualified(node.func, origin.unit)
        if name.startswith("torch.nn.") and name.count(".") == 2 and name[9].isupper() and "Parameter" not in name:
            return True
        found = self.file.placement.world.class_named(dotted(node.func))
        if found is None:
            return False
        unit, owner = found
        direct = all(self.file.names.qualified(base.value, unit) == "torch.nn.Module" for base in owner.bases)
        defines = re.search(
            r"\bdef (?:device|is_cuda|__getattr__)\b|self\.(?:device|is_cuda)\s*=|^\s+device\b", unit.text, re.M
        )
        return bool(owner.bases) and direct and defines is None
