"""TDL506 legacy-cuda-tensor, TDL507 type-changes-device, TDL508 legacy-tensor-constructor: tensor types of torch 0.3."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
}
_TYPE = re.compile(rf"torch\.(cuda\.)?({'|'.join(_DTYPES)})?Tensor")
_SHORT = {"float32": "float", "float64": "double", "float16": "half", "int64": "long", "int32": "int", "bool": "bool"}


class LegacyTensor(Check):
    rules = (
        Rule("TDL506", "legacy-cuda-tensor", "a tensor type such as `torch.cuda.FloatTensor`", fix="unsafe"),
        Rule(
            "TDL507",
            "type-changes-device",
            "`.type(torch.FloatTensor)`, which moves to the CPU, or `.type` of a CUDA type",
            fix="unsafe",
        ),
        Rule(
            "TDL508",
            "legacy-tensor-constructor",
            "data given to `torch.FloatTensor` or its like, instead of `torch.tensor`",
            fix="safe",
            default=False,
        ),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit names a tensor type of torch, or an alias of one."""
        return re.search(rf"\b(?:{'|'.join(_DTYPES)})?Tensor\b", unit.text) is not None or any(
            local in unit.words and any(_TYPE.fullmatch(target) for target in targets)
            for local, targets in names.aliases.items()
        )

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "type" and len(node.args) == 1:
            self._type_call(node, node.args[0].value)
            return
        match = _TYPE.fullmatch(self.name(node.func))
        if match is None or is_compatibility_code(self.unit, node):
            return
        cuda, dtype = bool(match[1]), _DTYPES.get(match[2], "")
        old = self.code(node.func)
        if cuda:
            self.report(
                node,
                "TDL506",
                f"`{old}(…)` is a legacy constructor and raises in a build without CUDA; use `torch.tensor(data, device=…)` or "
                "`torch.empty(size, device=…)`",
                fix=self._fix(node, dtype or "float32", "cuda"),
            )
        elif self._is_data(node):
            self.report(
                node,
                "TDL508",
                f"`{old}(…)` is a legacy constructor, which takes data or a size and heeds no default device; use "
                f"`torch.tensor(data, dtype=torch.{dtype or 'float32'})`",
                fix=self._fix(node, dtype or "float32", ""),
            )

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """A CUDA type that is only named."""
        above = self.parent(node)
        if isinstance(above, (cst.Attribute, cst.ImportFrom, cst.ImportAlias)):
            return
        if isinstance(above, cst.Call) and above.func is node:
            return
        call = self.enclosing(node, cst.Call)
        if call is not None and self.code(call.func).rpartition(".")[2] in ("type", "set_default_tensor_type"):
            return
        match = _TYPE.fullmatch(self.name(node))
        if match is None or not match[1] or is_compatibility_code(self.unit, node) or self._picked(node):
            return
        self.report(
            node,
            "TDL506",
            f"`{self.code(node)}` is a legacy tensor type; compare or pass a `dtype` and a `device` instead",
        )

    def _picked(self, node: cst.CSTNode) -> bool:
        """Whether a test about devices picks the type: `torch.cuda.FloatTensor if cuda else torch.FloatTensor`."""
        child, above = node, self.parent(node)
        while above is not None:
            if (
                isinstance(above, (cst.IfExp, cst.If))
                and child is not above.test
                and re.search(r"cuda|gpu|device", self.unit.module.code_for_node(above.test), re.I)
            ):
                return True
            child, above = above, self.parent(above)
        return False

    def _is_data(self, node: cst.Call) -> bool:
        """Whether a constructor is given data, rather than a size, a storage or nothing."""
        if len(node.args) != 1 or node.args[0].star or node.args[0].keyword:
            return False
        value = node.args[0].value
        if isinstance(value, (cst.List, cst.ListComp)):
            return True
        return isinstance(value, cst.Call) and self.name(value.func) in ("numpy.array", "numpy.asarray")

    def _fix(self, node: cst.Call, dtype: str, device: str) -> Fix | None:
        if len(node.args) == 0 or any(arg.star or arg.keyword for arg in node.args):
            return None
        maker = "torch.tensor" if self._is_data(node) else "torch.empty"
        if maker == "torch.empty" and not all(isinstance(arg.value, cst.Integer) for arg in node.args):
            return None
        spelled, needs = self.file.names.spell(maker)
        kind, more = self.file.names.spell(f"torch.{dtype}")
        given = ", ".join(self.code(arg.value) for arg in node.args)
        place = f', device="{device}"' if device else ""
        text = f"{spelled}({given}, dtype={kind}{place})"
        if "\n" in given or "#" in given or isinstance(self.parent(node), cst.Await):
            return None
        root = dotted(node.func).partition(".")[0]
        gone = () if self.file.names.aliases.get(root, {"torch"}) == {"torch"} else (root,)
        # What `torch.Tensor` makes depends on the default dtype; a default device is heeded by the new call alone.
        typed = _TYPE.fullmatch(self.name(node.func))
        settled = self.file.words.isdisjoint(("set_default_device", "set_default_tensor_type", "device"))
        safe = not device and maker == "torch.tensor" and typed is not None and bool(typed[2]) and settled
        return Fix(
            f"Use `{maker}`", (replace(self.unit, node, text),), "safe" if safe else "unsafe", needs + more, gone
        )

    def _type_call(self, node: cst.Call, kind: cst.BaseExpression) -> None:
        assert isinstance(node.func, cst.Attribute)
        match = _TYPE.fullmatch(string_value(kind) or self.name(kind))
        if match is None or not match[2] or is_compatibility_code(self.unit, node):
            return
        dtype = _DTYPES[match[2]]
        device = "cuda" if match[1] else "cpu"
        spelled, needs = self.file.names.spell(f"torch.{dtype}")
        start = self.unit.offsets(node.func.attr)[0]
        edit = replace(
            self.unit, node, self.file.source.text[self.unit.offsets(node)[0] : start] + f'to("{device}", {spelled})'
        )
        where = "to the current CUDA device" if match[1] else "to the CPU, wherever the tensor was"
        advice = f"; if only the dtype is meant: `.{_SHORT[dtype]}()`" if dtype in _SHORT and not match[1] else ""
        root = dotted(kind).partition(".")[0]
        gone = () if not root or self.file.names.aliases.get(root, {"torch"}) == {"torch"} else (root,)
        fix = Fix("Say what it does", (edit,), "unsafe" if match[1] else "safe", needs, gone)
        self.report(
            node,
            "TDL507",
            f'`.type({self.code(kind)})` moves {where}; write `.to("{device}", torch.{dtype})`{advice}',
            fix=None if "#" in self.code(node) else fix,
        )
