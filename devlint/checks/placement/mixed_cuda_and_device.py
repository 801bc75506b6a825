"""TDL129 mixed-cuda-and-device: one thing goes to `device`, the next to CUDA whatever `device` is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, FACTORIES, move_of, string_value
from devlint.semantics.guards import choices
from devlint.semantics.training import code_below
from devlint.semantics.tree import dotted

_DEVICE = re.compile(r"(?:^|\.|_)(?:device|dev)$")


class MixedCudaAndDevice(Check):
    rules = (
        Rule(
            "TDL129",
            "mixed-cuda-and-device",
            "`.cuda()` beside moves to a `device` variable, which may be another device",
            fix="unsafe",
        ),
    )
    triggers = (("cuda", "xpu"), ("device", "dev"), ("to", "device"))
    patterns = (r"""\.cuda\(|["'](?:cuda|xpu)["']""", r"(?:\.to\(|device\s*=)\s*[^)]*\b(?:device|dev)\b")

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._scope(node)

    def visit_Module(self, node: cst.Module) -> None:
        self._scope(node)

    def _scope(self, scope: cst.CSTNode) -> None:
        places = [
            place for node in code_below(self.unit, scope) if isinstance(node, cst.Call) for place in self._place(node)
        ]
        named = [(node, place) for node, place, literal in places if not literal]
        if not named or self._is_pinned(scope, dotted(named[0][1])):
            return
        device = dotted(named[0][1])
        if any(dotted(place) != device for _, place in named):
            # Several devices are at work here, and which of them CUDA stands for is not to be told.
            return
        for node, place, literal in places:
            if literal and not self._chosen(node) and not self._moved_on(node):
                self.report(
                    node,
                    "TDL129",
                    f"this goes to CUDA, while line {self.unit.span(named[0][0]).line} moves to `{device}`, which may be another device; use "
                    f"`{device}` for all",
                    fix=self._fix(node, place, device),
                    evidence=[(named[0][0], f"`{device}` is used here")],
                )
                return

    def _place(self, node: cst.Call) -> Iterator[tuple[cst.Call, cst.BaseExpression, bool]]:
        """Where a call puts something: the expression, and whether it is a literal accelerator without an index."""
        if self.name(node.func) in FACTORIES:
            arg = argument(node, "device")
            target = arg.value if arg is not None else None
        else:
            move = move_of(node)
            if move is None:
                return
            target = move.device_node
            if target is None and isinstance(node.func, cst.Attribute) and node.func.attr.value == "cuda":
                yield node, node.func, True
                return
        if target is None:
            return
        text = string_value(target)
        if text is not None:
            if text in ACCELERATORS:
                yield node, target, True
        elif _DEVICE.search(dotted(target)) and not re.search(r"\.device$", dotted(target).replace("self.device", "")):
            yield node, target, False

    def _is_pinned(self, scope: cst.CSTNode, name: str) -> bool:
        """Whether the device is one that the scope spells out: then it knows what it does."""
        return any(
            isinstance(node, cst.Assign)
            and dotted(node.targets[0].target) == name
            and re.search(
                r"is_available|args|opt|cfg|config|current_accelerator|device\(\w+\)",
                self.unit.module.code_for_node(node.value),
            )
            is None
            for node in self.unit.below(scope)
        )

    def _moved_on(self, node: cst.CSTNode) -> bool:
        """Whether the result is moved again at once, as in `x.cuda().to(device)`."""
        above = self.parent(node)
        while isinstance(above, (cst.Attribute, cst.Call)):
            if isinstance(above, cst.Call) and move_of(above) is not None:
                return True
            above = self.parent(above)
        return False

    def _chosen(self, node: cst.CSTNode) -> bool:
        """Whether a test about devices, or an attempt that may fail, decides on this move."""
        return self.enclosing(node, cst.Try) is not None or any(
            re.search(r"cuda|gpu|device|accelerat", self.unit.module.code_for_node(choice.test), re.I)
            for choice in choices(self.unit, node)
        )

    def _fix(self, node: cst.Call, place: cst.BaseExpression, device: str) -> Fix:
        title = f"Use `{device}`"
        if place is not node.func:
            return Fix(title, (replace(self.unit, place, device),), "unsafe")
        assert isinstance(node.func, cst.Attribute)
        start, end = self.unit.offsets(node.func.attr)
        inner = self.file.source.text[end : self.unit.offsets(node)[1]]
        edits = (
            Edit(start, end, "to"),
            Edit(end + inner.index("(") + 1, end + inner.index("(") + 1, device + (", " if node.args else "")),
        )
        return Fix(title, edits, "unsafe")
