"""Autocast blocks: which one surrounds a node, for which devices, in which dtype, and whether it may be on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.origins import Origins
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

AUTOCAST = frozenset(("torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"))
SCALERS = frozenset(("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"))


class Autocasts:
    """The autocast blocks of one file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._origins = Origins(file)

    def around(self, node: cst.CSTNode, unit: Unit) -> cst.Call | None:
        """The innermost `autocast(…)` whose block, or whose function where it is a decorator, holds `node`."""
        at = unit.parents.get(node)
        while at is not None:
            contexts: list[cst.BaseExpression] = []
            if isinstance(at, cst.With):
                contexts = [item.item for item in at.items]
            elif isinstance(at, cst.FunctionDef):
                contexts = [decorator.decorator for decorator in at.decorators]
            for context in reversed(contexts):
                call = self.call(context, unit)
                if call is not None:
                    return call
            if isinstance(at, cst.FunctionDef):
                return None
            at = unit.parents.get(at)
        return None

    def call(self, node: cst.BaseExpression, unit: Unit) -> cst.Call | None:
        """The `autocast(…)` that an expression is, or that its name is bound to."""
        origins = self._origins.of(node, unit)
        if len(origins) == 1 and origins[0] is not None:
            node, unit = origins[0].node, origins[0].unit
        if isinstance(node, cst.Call) and self._file.names.qualified(node.func, unit) in AUTOCAST:
            return node
        return None

    def is_off(self, call: cst.Call) -> bool:
        """Whether the block is literally given `enabled=False`."""
        enabled = argument(call, "enabled")
        return enabled is not None and isinstance(enabled.value, cst.Name) and enabled.value.value == "False"

    def may_be_cuda(self, call: cst.Call, unit: Unit) -> bool:
        """Whether the block covers CUDA, or a device that nothing in the file says to be another."""
        name = self._file.names.qualified(call.func, unit)
        if name != "torch.amp.autocast":
            return name == "torch.cuda.amp.autocast"
        device = argument(call, "device_type", 0)
        if device is None:
            return False
        texts = list(self._device_texts(device.value, unit))
        return not texts or any(text.startswith("cuda") for text in texts)

    def _device_texts(self, node: cst.BaseExpression, unit: Unit) -> Iterator[str]:
        """The literal devices that an expression, the `.type` of a device, may stand for."""
        if isinstance(node, cst.Attribute) and node.attr.value == "type":
            node = node.value
        for origin in self._origins.of(node, unit):
            if origin is None:
                yield "cuda?"
                continue
            value, where = origin.node, origin.unit
            if isinstance(value, cst.Call) and self._file.names.qualified(value.func, where) == "torch.device":
                if value.args:
                    yield from self._device_texts(value.args[0].value, where)
                continue
            text = string_value(value)
            yield text if text is not None else "cuda?"

    def dtypes(self, call: cst.Call, unit: Unit) -> set[str]:
        """The qualified dtypes that the block may have; an empty name among them where one is not known."""
        dtype = argument(call, "dtype", 1)
        if dtype is None:
            return {""}
        return {
            self._file.names.qualified(origin.node, origin.unit) if origin is not None else ""
            for origin in self._origins.of(dtype.value, unit)
        }

    def scaler(self, node: cst.BaseExpression, unit: Unit) -> cst.Call | None:
        """The one `GradScaler(…)` that an expression stands for."""
        calls = {origin.node if origin is not None else None for origin in self._origins.of(node, unit)}
        made = calls.pop() if len(calls) == 1 else None
        for other in self._file.units:
            if isinstance(made, cst.Call) and made in other.parents:
                return made if self._file.names.qualified(made.func, other) in SCALERS else None
        return None
