"""Modules that behave otherwise in training than in evaluation: dropout, batch statistics, `self.training`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

# `MultiheadAttention` has no dropout unless asked for; `InstanceNorm` keeps no statistics.
_LAYERS = re.compile(r"torch\.nn\.(\w*Dropout\w*|\w*BatchNorm\w*|Transformer\w*|RReLU)")
_WRAPPERS = frozenset(
    "torch.nn.DataParallel torch.nn.parallel.DistributedDataParallel torch.compile torch.jit.script".split()
)
_SAME_MODULE = frozenset("to cuda cpu float half double bfloat16 type train requires_grad_ xpu apply".split())
_WITH_DROPOUT = re.compile(r"torch\.nn\.(LSTM|GRU|RNN|MultiheadAttention|Transformer\w*)")
_ZERO = re.compile(r"0(?:\.0*)?")


@dataclass(frozen=True)
class Made:
    """A call that makes a module, and the unit that it stands in."""

    node: cst.Call
    unit: Unit


class ModeLayers:
    """Finds the layers of one file's modules that evaluation mode is for."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._origins = Origins(file)

    def of(self, node: cst.BaseExpression, unit: Unit) -> str:
        """What depends on the mode in every module that `node` may be, such as `Dropout`; empty where that is unknown."""
        layers = [self._constructed(made.node, made.unit) for made in self.made_by(node, unit)]
        return layers[-1] if layers and all(layers) else ""

    def made_by(self, node: cst.BaseExpression, unit: Unit) -> list[Made]:
        """The calls that made what `node` stands for, moves and wrappers taken off; none where one is not known."""
        found: list[Made] = []
        pending, seen = [(node, unit)], set[cst.CSTNode]()
        while pending:
            origins = self._origins.of(*pending.pop())
            for origin in origins:
                if origin is None or not isinstance(origin.node, cst.Call):
                    return []
                if origin.node not in seen:
                    seen.add(origin.node)
                    inner = self._wrapped(origin.node, origin.unit)
                    if inner is not None:
                        pending.append((inner, origin.unit))
                    else:
                        found.append(Made(origin.node, origin.unit))
        return found

    def shares(self, one: cst.BaseExpression, unit: Unit, other: cst.BaseExpression, at: Unit) -> bool:
        """Whether two expressions may be the same module, or the first one holds the second."""
        made, target = self.made_by(one, unit), {call.node for call in self.made_by(other, at)}
        if not made or not target:
            return True
        return any(
            call.node in target
            or any(
                not target.isdisjoint(inner.node for inner in self.made_by(arg.value, call.unit))
                for arg in call.node.args
            )
            for call in made
        )

    def _wrapped(self, call: cst.Call, unit: Unit) -> cst.BaseExpression | None:
        """The module that a call hands on: `model.to(device)`, `DataParallel(model)`."""
        if self._file.names.qualified(call.func, unit) in _WRAPPERS:
            return call.args[0].value if call.args and not call.args[0].star else None
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _SAME_MODULE:
            return call.func.value
        return None

    def _constructed(self, call: cst.Call, unit: Unit) -> str:
        name = self._file.names.qualified(call.func, unit)
        if re.match(
            r"torchvision\.models\.(?:\w+\.)*(?:resnet|resnext|wide_resnet|densenet|mobilenet|efficientnet)", name
        ):
            return "BatchNorm"
        if name.startswith("torch.nn."):
            return self._layer(call, unit)
        found = self._file.placement.world.class_named(dotted(call.func))
        return self._in_class(*found, set()) if found is not None else ""

    def _in_class(self, unit: Unit, owner: cst.ClassDef, seen: set[cst.ClassDef]) -> str:
        """The first layer or read of `self.training` in a class, or in one of the file that it makes or extends."""
        world = self._file.placement.world
        seen.add(owner)
        if not world.is_module(unit, owner) or re.search(r"def (?:train|eval)\(", unit.text):
            return ""
        text = self._layer(owner, unit)
        if text:
            return text
        for node in unit.below(owner):
            if isinstance(node, cst.Attribute) and dotted(node) == "self.training":
                return "self.training"
            name = dotted(node.func) if isinstance(node, cst.Call) else ""
            found = world.class_named(name) if name else None
            if found is not None and found[1] not in seen:
                inner = self._in_class(*found, seen)
                if inner:
                    return inner
        return ""

    def _layer(self, scope: cst.CSTNode, unit: Unit) -> str:
        for node in unit.below(scope):
            if isinstance(node, cst.Call):
                name = self._file.names.qualified(node.func, unit)
                drops = argument(node, "dropout")
                if drops is not None and _ZERO.fullmatch(unit.module.code_for_node(drops.value)):
                    continue
                match = (_WITH_DROPOUT if drops is not None else _LAYERS).fullmatch(name)
                if match and not (node.args and _ZERO.fullmatch(unit.module.code_for_node(node.args[0].value))):
                    return match[1]
        return ""
