"""TDL205 non-blocking-d2h-unsynced: a copy to the CPU is read before it has arrived."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, remove_argument
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import keyword_is, move_of, string_value
from devlint.semantics.tree import dotted

# Whatever waits, or orders work on streams, is taken to make the copy safe.
_ORDERING = frozenset(
    "synchronize Event Stream stream wait_stream wait_event current_stream record_stream record_event "
    "wait wait_tensor".split()
)
# What is saved for the backward pass goes back to the device in stream order; the host never reads it.
_OFFLOADING = frozenset(("save_for_backward", "saved_tensors", "saved_tensors_hooks"))
_READS = ("item", "tolist", "numpy")
_MODULE_NAME = re.compile(r"model|module|net$|encoder|decoder|unet|vae|ema|pipe|layer|block|self$", re.I)


class NonBlockingD2H(Check):
    rules = (
        Rule(
            "TDL205",
            "non-blocking-d2h-unsynced",
            "a device-to-host copy with `non_blocking=True` that nothing waits for before it is read",
            fix="unsafe",
        ),
    )
    triggers = (("non_blocking",), ("cpu", "copy_"))
    patterns = (r"non_blocking\s*=\s*True",)

    def visit_Call(self, node: cst.Call) -> None:
        if not isinstance(node.func, cst.Attribute) or not keyword_is(node, "non_blocking", "True"):
            return
        if node.func.attr.value == "copy_":
            self._into_a_buffer(node, _whole(node.func.value))
            return
        target = argument(node, "device", 0)
        if target is None or not self._is_cpu(target.value):
            return
        if node.func.attr.value != "to" and not self._forwards(node):
            return
        if _MODULE_NAME.search(dotted(node.func.value)) and node.func.attr.value == "to":
            return
        if isinstance(self.parent(node), cst.Expr) or not self.unit.words.isdisjoint(_ORDERING | _OFFLOADING):
            return
        if self._waited_for(node):
            return
        arg = argument(node, "non_blocking")
        edit = remove_argument(self.unit, node, arg) if arg else None
        self.report(
            node,
            "TDL205",
            "this copy to the CPU returns before the data has arrived, and nothing waits for it: what reads it sees "
            "stale memory; drop `non_blocking=True`, or call `torch.cuda.synchronize()` before the first read",
            fix=Fix("Drop `non_blocking=True`", (edit,), "unsafe") if edit else None,
        )

    def _into_a_buffer(self, node: cst.Call, name: str) -> None:
        """A copy into pinned memory that the same function then reads on the host."""
        function = self.enclosing(node, cst.FunctionDef)
        if function is None or not name or not self.unit.words.isdisjoint(_ORDERING | _OFFLOADING):
            return
        scope = (self.enclosing(node, cst.ClassDef) if name.startswith("self.") else None) or function
        made = [
            other.value
            for other in self.unit.below(scope, cst.Assign)
            if any(dotted(target.target) == name for target in other.targets)
        ]
        if len(made) != 1 or not isinstance(made[0], cst.Call) or not self._is_pinned(made[0]):
            return
        reads = [
            other
            for other in self.unit.below(function, cst.Call)
            if isinstance(other.func, cst.Attribute)
            and other.func.attr.value in _READS
            and _whole(other.func.value) == name
            and self.unit.index_of(other) > self.unit.index_of(node)
        ]
        if reads:
            arg = argument(node, "non_blocking")
            edit = remove_argument(self.unit, node, arg) if arg else None
            self.report(
                node,
                "TDL205",
                f"this copy into `{name}` returns before the data has arrived, and line {self.unit.span(reads[0]).line} reads it: drop "
                "`non_blocking=True`, or call `torch.cuda.synchronize()` before the read",
                fix=Fix("Drop `non_blocking=True`", (edit,), "unsafe") if edit else None,
                evidence=[(reads[0], f"`{name}` is read here")],
            )

    def _is_pinned(self, call: cst.Call) -> bool:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "pin_memory" and not call.args:
            return True
        return keyword_is(call, "pin_memory", "True") and argument(call, "device") is None

    def _is_cpu(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the CPU: the string, `torch.device("cpu")`, or a name bound to nothing else."""
        if string_value(node) == "cpu":
            return True
        if isinstance(node, cst.Call) and self.name(node.func) == "torch.device":
            return bool(node.args) and string_value(node.args[0].value) == "cpu"
        if not isinstance(node, cst.Name):
            return False
        values = [
            above.value
            for above in (self.parent(target) for target in self._bindings(node.value))
            if isinstance(above, cst.Assign)
        ]
        return bool(values) and all(not isinstance(value, cst.Name) and self._is_cpu(value) for value in values)

    def _waited_for(self, node: cst.Call) -> bool:
        """Whether a blocking copy of something else follows in the same block: it waits for this one, too."""
        statement = self.parent(node)
        while statement is not None and not isinstance(self.parent(statement), cst.IndentedBlock):
            statement = self.parent(statement)
        block = self.parent(statement) if statement is not None else None
        if not isinstance(block, cst.IndentedBlock) or statement is None:
            return False
        after = self.unit.below(block)[self.unit.end_of(statement) - self.unit.end_of(block) :]
        calls = (call for call in after if isinstance(call, cst.Call))
        return any(self._is_blocking_copy(call) for call in calls)

    def _is_blocking_copy(self, call: cst.Call) -> bool:
        move = move_of(call)
        return move is not None and move.to_cpu and not keyword_is(call, "non_blocking", "True")

    def _bindings(self, name: str) -> list[cst.AssignTarget]:
        return [
            node
            for node in self.unit.nodes
            if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == name
        ]

    def _forwards(self, call: cst.Call) -> bool:
        """Whether the called method of this class hands its own `non_blocking` on to `.to()`."""
        assert isinstance(call.func, cst.Attribute)
        scope = self.enclosing(call, cst.ClassDef)
        if scope is None or dotted(call.func.value) != "self":
            return False
        return any(
            isinstance(node, cst.FunctionDef)
            and node.name.value == call.func.attr.value
            and re.search(r"\.to\(.*non_blocking\s*=\s*non_blocking", self.code(node), re.S) is not None
            for node in self.unit.below(scope)
        )


def _whole(node: cst.BaseExpression) -> str:
    """The dotted name of what `node` is, or is a view of: `buffer` for `buffer[:n].view(-1)`."""
    while not isinstance(node, (cst.Name, cst.Attribute)) or (isinstance(node, cst.Attribute) and not dotted(node)):
        if isinstance(node, (cst.Subscript, cst.Attribute)):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value
        else:
            return ""
    return dotted(node)
