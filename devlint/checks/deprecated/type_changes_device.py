"""TDL507 type-changes-device: `x.type(torch.FloatTensor)`, a change of dtype that is a move, too."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.tensor_types import DEFAULT_DTYPE_SETTERS, TensorType, tensor_type
from devlint.semantics.tree import dotted

# `Module.type` casts integer buffers, too, which `Module.to` leaves alone.
_MODULE = re.compile(r"(?:^|_)(?:model|net|module|network|self|criterion|encoder|decoder|layer)s?\d*$", re.I)


class TypeChangesDevice(Check):
    rules = (
        Rule("TDL507", "type-changes-device", "a `.type(…)` that moves the tensor besides casting it", fix="unsafe"),
    )
    triggers = (("type",),)
    patterns = (r"\.\s*type\s*\(", r"Tensor\b")

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "type" or has_unpacking(node):
            return
        arg = argument(node, "dtype", 0) or argument(node, "dst_type")
        if arg is None:
            return
        name = string_value(arg.value) or self.name(arg.value)
        kind = tensor_type(name)
        if kind is None or is_compatibility_code(self.unit, node):
            return
        device = "cuda" if kind.on_cuda else "cpu"
        dtype = f"torch.{kind.dtype}" if kind.dtype else "torch.get_default_dtype()"
        cast = f"; to cast alone, use `.to({dtype})`"
        self.report(
            node,
            "TDL507",
            f"`.type({name})` moves the tensor to {'CUDA' if kind.on_cuda else 'the CPU'} besides casting it; "
            f'say so with `.to("{device}", {dtype})`{cast}',
            fix=self._fix(node, func, arg, kind, device),
        )

    def _fix(self, node: cst.Call, func: cst.Attribute, arg: cst.Arg, kind: TensorType, device: str) -> Fix | None:
        receiver = dotted(func.value)
        if _MODULE.search(receiver) or arg.keyword is not None:
            return None
        if not kind.dtype and not self.file.words.isdisjoint(DEFAULT_DTYPE_SETTERS):
            return None
        dtype, needs = self.file.names.spell(f"torch.{kind.dtype or 'float32'}")
        start, end = self.unit.offsets(func.attr)
        edits = (Edit(start, end, "to"), Edit(*self.unit.offsets(arg.value), f'"{device}", {dtype}'))
        root = dotted(arg.value).partition(".")[0]
        gone = (root,) if root and self.file.names.aliases.get(root) != {"torch"} else ()
        # A tensor on cuda:1 stays there under `.type`, while `.to("cuda")` takes it to the current device.
        return Fix(
            f'Use `.to("{device}", torch.{kind.dtype or "float32"})`',
            edits,
            "unsafe" if kind.on_cuda else "safe",
            needs,
            gone,
        )
