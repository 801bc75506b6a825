"""TDL505 set-default-tensor-type: one deprecated call that sets two things."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.tree import dotted

_DTYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"}
_TYPE = re.compile(r"torch\.(cuda\.)?(Float|Double|Half|BFloat16)Tensor")
_CUDA = re.compile(r"\bcuda\b")


class SetDefaultTensorType(Check):
    rules = (
        Rule(
            "TDL505",
            "set-default-tensor-type",
            "the deprecated `torch.set_default_tensor_type`",
            fix="safe",
        ),
    )
    triggers = (("set_default_tensor_type",),)

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != "torch.set_default_tensor_type" or is_compatibility_code(self.unit, node):
            return
        self.report(
            node,
            "TDL505",
            "`torch.set_default_tensor_type` is deprecated since torch 2.1; set the dtype with "
            "`torch.set_default_dtype` and the device with `torch.set_default_device`, or for a block: "
            "`with devlint.runtime.default_device(device):`",
            fix=self._fix(node),
        )

    def _fix(self, node: cst.Call) -> Fix | None:
        arg = argument(node, "t", 0)
        if arg is None or not isinstance(self.parent(node), cst.Expr):
            return None
        cuda = self.file.settings.targets(2, 0)
        value = arg.value
        if isinstance(value, cst.IfExp):
            body, other = self._type(value.body), self._type(value.orelse)
            if body is None or other is None or body[1] != other[1] or body[0] == other[0] or not cuda:
                return None
            devices = ['"cuda"' if kind[0] else '"cpu"' for kind in (body, other)]
            return self._set(node, body[1], f"{devices[0]} if {self.code(value.test)} else {devices[1]}")
        kind = self._type(value)
        if kind is None or (kind[0] and not cuda):
            return None
        if kind[0]:
            return self._set(node, kind[1], '"cuda"')
        # The old call also ends an earlier CUDA default, which setting the dtype alone would leave in force.
        if _CUDA.search(self.file.source.text):
            return self._set(node, kind[1], '"cpu"') if cuda else None
        return self._set(node, kind[1], "")

    def _set(self, node: cst.Call, dtype: str, device: str) -> Fix | None:
        names = self.file.names
        setter, needs = names.spell("torch.set_default_dtype")
        value, more = names.spell(f"torch.{dtype}")
        text = f"{setter}({value})"
        title = "Set the default dtype"
        if device:
            placer, other = names.spell("torch.set_default_device")
            indent = self._indent(node)
            if indent is None:
                return None
            text += f"{indent}{placer}({device})"
            needs += other
            title = "Set the default dtype and the default device"
        value_of = node.args[0].value
        parts = (value_of.body, value_of.orelse) if isinstance(value_of, cst.IfExp) else (value_of,)
        roots = dict.fromkeys(dotted(part).partition(".")[0] for part in (node.func, *parts))
        gone = tuple(root for root in roots if root and names.aliases.get(root, {"torch"}) != {"torch"})
        edit = replace(self.unit, node, text)
        return Fix(title, (edit,), "unsafe" if device else "safe", needs + more, gone)

    def _indent(self, node: cst.Call) -> str | None:
        """What separates two statements at `node`: a line break and the indentation, or `; ` on a shared line."""
        span = self.unit.span(node)
        before = self.file.source.line(span.line)[: span.column]
        return self.file.source.newline + before if not before.strip() else "; "

    def _type(self, node: cst.BaseExpression) -> tuple[bool, str] | None:
        """(on CUDA, dtype) of a tensor type, given as an object or as a string."""
        text = string_value(node) or self.name(node)
        match = _TYPE.fullmatch(text)
        return (bool(match[1]), _DTYPES[match[2]]) if match else None
