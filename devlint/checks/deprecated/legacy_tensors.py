"""TDL506 legacy-cuda-tensor and TDL508 legacy-tensor-constructor: `torch.cuda.FloatTensor(3)`, `torch.LongTensor([1])`."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import add_argument, argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.guards import choices, is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tensor_types import (
    CPU_TYPES,
    CUDA_TYPES,
    DEFAULT_DEVICE_SETTERS,
    DEFAULT_DTYPE_SETTERS,
    TensorType,
    argument_kind,
    tensor_type,
)
from devlint.semantics.tree import dotted
from devlint.units import Unit

_CALL = re.compile(r"\b\w*Tensor\s*\(")
_DEVICE_TEST = re.compile(r"cuda|gpu|device", re.I)
_DEVICE_BLOCK = re.compile(r"with\s[^\n:]*\bdevice\(")


class LegacyTensors(Check):
    rules = (
        Rule(
            "TDL506",
            "legacy-cuda-tensor",
            "a tensor type of `torch.cuda`, such as `torch.cuda.FloatTensor`",
            fix="unsafe",
        ),
        Rule(
            "TDL508",
            "legacy-tensor-constructor",
            "a tensor made from data by its type's constructor",
            fix="safe",
            default=False,
        ),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit holds a tensor type of CUDA, or calls any tensor type."""
        if not unit.words.isdisjoint(names.aliases_of(CPU_TYPES | CUDA_TYPES)):
            return True
        return ("cuda" in unit.words and "Tensor" in unit.text) or _CALL.search(unit.text) is not None

    def visit_Name(self, node: cst.Name) -> None:
        self._reference(node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._reference(node)

    def _reference(self, node: cst.Name | cst.Attribute) -> None:
        above = self.parent(node)
        if isinstance(above, (cst.Attribute, cst.ImportAlias, cst.ImportFrom, cst.AsName, cst.Annotation)):
            return
        name = self.name(node)
        kind = tensor_type(name)
        if kind is None or is_compatibility_code(self.unit, node):
            return
        call = above if isinstance(above, cst.Call) and above.func is node else None
        if kind.on_cuda:
            self._cuda(node, call, name, kind)
        elif call is not None:
            self._cpu(call, name, kind)

    def _cuda(self, node: cst.Name | cst.Attribute, call: cst.Call | None, name: str, kind: TensorType) -> None:
        if call is None and (self._has_its_own_rule(node) or self._picked(node)):
            return
        self.report(
            call or node,
            "TDL506",
            f"`{name}` is a legacy tensor type, and calling it raises where torch has no CUDA; say dtype and device: "
            f'`dtype=torch.{kind.dtype}, device="cuda"`',
            fix=self._fix(call, kind) if call is not None else None,
        )

    def _has_its_own_rule(self, node: cst.CSTNode) -> bool:
        """Whether the type is handed to `x.type(…)` (TDL507) or to `set_default_tensor_type` (TDL505)."""
        above = self.enclosing(node, cst.Call)
        if above is None:
            return False
        method = isinstance(above.func, cst.Attribute) and above.func.attr.value == "type"
        return method or self.name(above.func) == "torch.set_default_tensor_type"

    def _picked(self, node: cst.CSTNode) -> bool:
        """Whether a test about devices picks the type: `torch.cuda.FloatTensor if cuda else torch.FloatTensor`."""
        return any(
            _DEVICE_TEST.search(self.unit.module.code_for_node(choice.test)) for choice in choices(self.unit, node)
        )

    def _cpu(self, call: cst.Call, name: str, kind: TensorType) -> None:
        given = argument_kind(call, self.file.names, self.unit)
        dtype = f"torch.{kind.dtype}" if kind.dtype else "torch.get_default_dtype()"
        if given == "data":
            self.report(
                call,
                "TDL508",
                f"`{name}` is a legacy constructor: it takes integers for sizes and ignores the default device; use "
                f"`torch.tensor(…, dtype={dtype})`",
                fix=self._fix(call, kind),
            )
        elif given == "refused":
            self.report(
                call,
                "TDL508",
                f"`{name}` takes a sequence, and raises a TypeError for this; use `torch.tensor([…], dtype={dtype})`",
            )

    def _fix(self, call: cst.Call, kind: TensorType) -> Fix | None:
        given = argument_kind(call, self.file.names, self.unit)
        if given not in ("data", "sizes") or (kind.on_cuda and argument(call, "device") is not None):
            return None
        names = self.file.names
        maker, needs = names.spell("torch.tensor" if given == "data" else "torch.empty")
        dtype, more = names.spell(f"torch.{kind.dtype or self._default_dtype()}")
        keywords = f"dtype={dtype}" + (', device="cuda"' if kind.on_cuda else "")
        if any(arg.keyword is None for arg in call.args):
            added = add_argument(self.unit, call, keywords)
        else:
            added = add_argument(self.unit, call, f"0, {keywords}") if not call.args else None
        if added is None:
            return None
        edits: tuple[Edit, ...] = (replace(self.unit, call.func, maker), added)
        root = dotted(call.func).partition(".")[0]
        gone = () if names.aliases.get(root) == {"torch"} else (root,)
        level = "unsafe" if kind.on_cuda or self._sets_the_default_device() else "safe"
        title = f"Use `torch.{'tensor' if given == 'data' else 'empty'}`"
        return Fix(title, edits, "safe" if level == "safe" else "unsafe", needs + more, gone)

    def _default_dtype(self) -> str:
        """What says the default dtype: its own name, where the file leaves it alone."""
        return "float32" if self.file.words.isdisjoint(DEFAULT_DTYPE_SETTERS) else "get_default_dtype()"

    def _sets_the_default_device(self) -> bool:
        """Whether the file sets the default device, which `torch.tensor` obeys and the old constructors do not."""
        return (
            not self.file.words.isdisjoint(DEFAULT_DEVICE_SETTERS)
            or _DEVICE_BLOCK.search(self.file.source.text) is not None
        )
