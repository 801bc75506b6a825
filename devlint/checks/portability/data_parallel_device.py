"""TDL710 data-parallel-device: `nn.DataParallel` wants the module on the first of its devices."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import move_of, string_value
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted

_DEPTH = 4
_DATA_PARALLEL = "torch.nn.DataParallel"


class DataParallelDevice(Check):
    rules = (
        Rule(
            "TDL710",
            "data-parallel-device",
            "a module wrapped in `nn.DataParallel` that is on another device than the first of its `device_ids`",
            fix="unsafe",
        ),
    )
    triggers = (("DataParallel",),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != _DATA_PARALLEL or not node.args:
            return
        ids = argument(node, "device_ids", 1)
        first = self._first(ids.value) if ids is not None else 0
        if first is None:
            return
        for place in self._places(node):
            index = self._index(place)
            if index is not None and index != first:
                self._report(node, place, index, first, given=ids is not None)
                return

    def _first(self, node: cst.BaseExpression) -> int | None:
        """The first of literal `device_ids`; 0 for None, which means all."""
        if isinstance(node, cst.Name) and node.value == "None":
            return 0
        if isinstance(node, (cst.List, cst.Tuple)) and node.elements:
            head = node.elements[0].value
            return int(head.value) if isinstance(head, cst.Integer) else self._index(head)
        return None

    def _places(self, node: cst.Call) -> list[cst.BaseExpression]:
        """Where the wrapped module is put: before, in, or behind the wrapping."""
        found: list[cst.BaseExpression] = []
        chain: cst.CSTNode | None = node.args[0].value
        while isinstance(chain, cst.Call) and isinstance(chain.func, cst.Attribute):
            self._add(chain, found)
            chain = chain.func.value
        above = self.parent(node)
        while isinstance(above, (cst.Attribute, cst.Call)):
            if isinstance(above, cst.Call):
                self._add(above, found)
            above = self.parent(above)
        names = {dotted(chain)} if chain is not None else set()
        if isinstance(above, cst.Assign):
            names.add(dotted(above.targets[0].target))
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        for other in self.unit.below(scope):
            if (
                isinstance(other, cst.Call)
                and isinstance(other.func, cst.Attribute)
                and dotted(other.func.value) in names - {""}
            ):
                self._add(other, found)
        return found

    def _add(self, call: cst.Call, found: list[cst.BaseExpression]) -> None:
        move = move_of(call)
        if move is not None and move.device_node is not None:
            found.append(move.device_node)

    def _index(self, node: cst.BaseExpression, depth: int = 0) -> int | None:
        """The index of a device that is spelled out, here or where the one value of the name comes from."""
        if isinstance(node, cst.Integer):
            return int(node.value)
        text = string_value(node)
        if text is not None:
            match = re.fullmatch(r"cuda(?::(\d+))?", text)
            return int(match[1] or 0) if match else None
        if isinstance(node, cst.Call):
            if self.name(node.func) != "torch.device" or not node.args:
                return None
            if len(node.args) == 2 and isinstance(node.args[1].value, cst.Integer):
                return int(node.args[1].value.value)
            return self._index(node.args[0].value, depth + 1)
        if isinstance(node, cst.IfExp):
            indices = {
                index for part in (node.body, node.orelse) if (index := self._index(part, depth + 1)) is not None
            }
            return indices.pop() if len(indices) == 1 else None
        if not isinstance(node, (cst.Name, cst.Attribute)) or depth > _DEPTH:
            return None
        origins = self._origins.of(node, self.unit)
        spelled = [origin.node for origin in origins if origin is not None]
        found = [self._index(made, depth + 1) for made in spelled]
        known = {index for index in found if index is not None}
        return known.pop() if len(known) == 1 and None not in origins else None

    def _report(self, node: cst.Call, place: cst.BaseExpression, index: int, first: int, *, given: bool) -> None:
        literal = string_value(place) is not None
        what = f"device_ids[0] is {first}" if given else "without `device_ids` the first GPU is 0"
        fix = (
            Fix(f"Put it on GPU {first}", (replace(self.unit, place, f'"cuda:{first}"'),), "unsafe")
            if literal
            else None
        )
        self.report(
            node,
            "TDL710",
            f"the module is put on GPU {index}, and `nn.DataParallel` wants it on the first of its devices ({what}): `module must have its "
            f"parameters and buffers on device cuda:{first}`",
            fix=fix,
            evidence=[(place, f"GPU {index} is chosen here")],
        )
