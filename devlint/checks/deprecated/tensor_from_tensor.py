"""TDL518 tensor-from-tensor: `torch.tensor` of a tensor copies, warns, and may move."""

from __future__ import annotations

import re

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck
from devlint.edits import argument, has_unpacking, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.flow.meets import Copy


class TensorFromTensor(MeetCheck):
    rules = (
        Rule(
            "TDL518",
            "tensor-from-tensor",
            "`torch.tensor` of what is a tensor already: it copies, warns, and may move",
            fix="unsafe",
        ),
    )
    triggers = (("tensor",),)
    patterns = (r"\btensor\s*\(\s*\w",)

    def finish(self) -> None:
        """Report each copy of the units that were walked, and of what they call."""
        for copy in self.file.placement.world.notes.copies:
            self._report(copy)

    def _report(self, copy: Copy) -> None:
        unit, node = copy.unit, copy.node
        given = node.args[0].value
        name = unit.code(given)
        if copy.value.source == "element" or self._asked_for(copy, name):
            # What a loader yields may be a list; and who asks what it is has more than tensors to do with.
            return
        if copy.value.source == "parameter":
            hint = "its use in the function shows that it is a tensor"
        else:
            hint = "it is a tensor already"
        self.accuse(
            "TDL518",
            node,
            unit,
            f"`{unit.code(node.func)}({name})` copies a tensor (a UserWarning): {hint}; write `{name}.detach().clone()`, and "
            "`.to(…)` for another dtype or device",
            self._fix(copy),
            [],
        )

    def _asked_for(self, copy: Copy, name: str) -> bool:
        """Whether the function asks what kind of thing it was given."""
        scope = copy.unit.enclosing(copy.node, cst.FunctionDef) or copy.unit.module
        return (
            re.search(
                rf"(?:isinstance|is_tensor|torch_is|type)\(\s*{re.escape(name)}\b|hasattr\(\s*{re.escape(name)}",
                copy.unit.module.code_for_node(scope),
            )
            is not None
        )

    def _fix(self, copy: Copy) -> Fix | None:
        unit, node = copy.unit, copy.node
        given = node.args[0].value
        keywords = [arg.keyword.value if arg.keyword else "" for arg in node.args[1:]]
        if has_unpacking(node) or set(keywords) - {"device", "dtype", "requires_grad"} or node.args[0].keyword:
            return None
        text = unit.code(given)
        if "#" in unit.code(node) or "\n" in text:
            return None
        if not isinstance(given, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)):
            text = f"({text})"
        text += ".detach().clone()"
        placed = [unit.code(arg.value) for name in ("device", "dtype") if (arg := argument(node, name)) is not None]
        if placed:
            text += f".to({', '.join(placed)})"
        asks = argument(node, "requires_grad")
        if asks is not None:
            text += f".requires_grad_({unit.code(asks.value)})"
        return Fix("Copy it with `detach().clone()`", (replace(unit, node, text),), "unsafe")
