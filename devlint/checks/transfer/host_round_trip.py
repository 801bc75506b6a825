"""TDL210 host-round-trip: a tensor goes to the host as an array or a list, and comes straight back."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import argument, has_unpacking, statement_of
from devlint.lazycst import cst
from devlint.semantics.calls import keyword_is, move_of, string_value
from devlint.semantics.tree import dotted

_FROM_HOST = frozenset(
    f"torch.{name}"
    for name in "from_numpy tensor as_tensor asarray Tensor FloatTensor LongTensor DoubleTensor IntTensor HalfTensor "
    "BoolTensor ByteTensor".split()
)
_ARRAYS = frozenset(f"numpy.{name}" for name in "array asarray ascontiguousarray copy float32 float64 int64".split())
# Between the two, these change nothing but the type, the shape or the layout: the device can do them.
_SHAPING = frozenset(
    "float long double half int bool bfloat16 type view reshape squeeze unsqueeze contiguous clone detach copy astype "
    "flatten permute transpose t requires_grad_ ravel".split()
)


class HostRoundTrip(Check):
    rules = (
        Rule(
            "TDL210",
            "host-round-trip",
            "a tensor is copied to the host as an array or a list, and straight back to the device",
            default=False,
        ),
    )
    triggers = (("numpy", "tolist"),)
    patterns = (
        r"\.\s*cpu\s*\(|force\s*=\s*True|[\"']cpu[\"']",
        r"\.\s*(?:to|cuda)\s*\(|device\s*=",
        r"from_numpy|tensor\s*\(|Tensor\s*\(|asarray",
    )

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) not in _FROM_HOST or not node.args or has_unpacking(node):
            return
        target = self._moved_back(node)
        given, binding = node.args[0].value, None
        if isinstance(given, cst.Name):
            binding = self._only_made_for(given)
        array = binding.value if binding is not None else given
        tensor = self._copied(array) if target else None
        if tensor is None:
            return
        code = self.code(tensor)
        name = f"`{code}`" if "\n" not in code and len(code) <= 40 else "this tensor"
        way = f"`{code}.detach().to({target})`" if name != "this tensor" else f"`.detach().to({target})`"
        self.report(
            node,
            "TDL210",
            f"{name} is copied to the host and on to `{target}`, and the host waits for both; {way} does the same without it "
            "(`.clone()` where it will be written to)",
            evidence=[(binding, "it is copied to the host here")] if binding is not None else (),
        )

    def _moved_back(self, node: cst.Call) -> str:
        """The device that what `node` makes is put on at once; nothing for the CPU, or where it is not moved."""
        device = argument(node, "device")
        if device is not None:
            return "" if string_value(device.value) == "cpu" else self.code(device.value)
        at: cst.CSTNode = node
        while True:
            func = self.parent(at)
            call = self.parent(func) if isinstance(func, cst.Attribute) and func.value is at else None
            if not isinstance(call, cst.Call) or not isinstance(func, cst.Attribute) or call.func is not func:
                return ""
            move = move_of(call)
            if move is not None:
                return "" if move.to_cpu else move.device
            if func.attr.value not in _SHAPING and func.attr.value != "to":
                return ""
            at = call

    def _copied(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The tensor of which `node` is a copy on the host as an array or a list, with nothing computed on the way."""
        left = on_host = False
        while True:
            if isinstance(node, cst.Attribute) and node.attr.value == "data":
                node = node.value
                continue
            if not isinstance(node, cst.Call):
                break
            if self.name(node.func) in _ARRAYS and node.args:
                left, node = True, node.args[0].value
                continue
            if not isinstance(node.func, cst.Attribute):
                break
            method = node.func.attr.value
            if method in ("numpy", "tolist"):
                left, on_host = True, on_host or keyword_is(node, "force", "True")
            elif (move := move_of(node)) is not None and move.to_cpu:
                on_host = True
            elif method not in _SHAPING:
                break
            node = node.func.value
        return node if left and on_host else None

    def _only_made_for(self, use: cst.Name) -> cst.Assign | None:
        """The assignment of a name right before in the same block, where this is all that the name is used for."""
        statement = statement_of(self.unit, use)
        line = self.parent(statement) if statement is not None else None
        block = self.parent(line) if line is not None else None
        if not isinstance(block, (cst.IndentedBlock, cst.Module)) or not isinstance(line, cst.SimpleStatementLine):
            return None
        made: cst.Assign | None = None
        for other in block.body[: list(block.body).index(line)]:
            small = other.body[0] if isinstance(other, cst.SimpleStatementLine) else None
            if isinstance(small, cst.Assign) and [dotted(part.target) for part in small.targets] == [use.value]:
                made = small
        if made is None:
            return None
        scope = self.enclosing(use, cst.FunctionDef) or self.unit.module
        uses = [node for node in self.unit.below(scope) if isinstance(node, cst.Name) and node.value == use.value]
        end, here = self.unit.end_of(made), self.unit.index_of(use)
        rebound = isinstance(statement, cst.Assign) and any(
            dotted(part.target) == use.value for part in statement.targets
        )
        for node in uses:
            index = self.unit.index_of(node)
            is_target = isinstance(self.parent(node), cst.AssignTarget)
            if node is use or index < end or (is_target and rebound and index < here):
                continue
            if index < here or not rebound:
                return None
        return made
