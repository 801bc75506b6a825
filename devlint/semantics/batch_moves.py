"""Batches that a loop over a loader moves to an accelerator."""

from __future__ import annotations

from devlint.lazycst import cst
from devlint.semantics.batch_loops import BatchLoop, BatchLoops
from devlint.semantics.calls import is_device, move_of, string_value
from devlint.semantics.imports import bound_at
from devlint.semantics.training import code_below
from devlint.semantics.tree import dotted
from devlint.units import Unit


class BatchMoves:
    """The moves that the loops of one file make of what they read."""

    def __init__(self, loops: BatchLoops) -> None:
        self._loops = loops

    def accelerated(self, loop: BatchLoop) -> bool:
        """Whether something of the batch goes to a device that need not be the CPU.

        It may go in the loop itself, in a function of the file that is handed some of it, or by a helper from elsewhere that
        is given a batch and a device.
        """
        names = set(bound_at(loop.node))
        return self._moved(loop.node.body, loop.unit, names, follow=True)

    def _moved(self, scope: cst.CSTNode, unit: Unit, names: set[str], *, follow: bool) -> bool:
        nodes = list(code_below(unit, scope))
        for _ in range(2):
            # Once more, for a comprehension's elements come before what they are taken from.
            for node in nodes:
                if isinstance(node, (cst.CompFor, cst.For)) and _root(node.iter) in names:
                    names |= set(bound_at(node))
                elif isinstance(node, cst.Assign) and _root(node.value) in names:
                    names |= {name for target in node.targets for name in bound_at(target)}
        return any(isinstance(node, cst.Call) and self._moves(node, unit, names, follow) for node in nodes)

    def _moves(self, call: cst.Call, unit: Unit, names: set[str], follow: bool) -> bool:
        move = move_of(call)
        if move is not None:
            return _root(move.receiver) in names and not move.to_cpu and not self._is_cpu(move.device_node, unit)
        handed = [arg for arg in call.args if _root(arg.value) in names]
        called = self._loops.function(call, unit) if handed else None
        if called is not None:
            params = [param.name.value for param in called[1].params.params]
            shift = int(dotted(call.func).startswith("self."))
            given = {
                arg.keyword.value if arg.keyword is not None else params[index + shift]
                for index, arg in enumerate(call.args)
                if arg in handed and (arg.keyword is not None or index + shift < len(params))
            }
            return follow and self._moved(called[1], called[0], given, follow=False)
        devices = [arg.value for arg in call.args if is_device(arg.value)] if handed else []
        return bool(devices) and not any(self._is_cpu(device, unit) for device in devices)

    def _is_cpu(self, device: cst.BaseExpression | None, unit: Unit) -> bool:
        """Whether a device is surely the CPU."""
        origins = self._loops.origins.of(device, unit) if device is not None else []
        return bool(origins) and all(origin is not None and _strings(origin.node) == ["cpu"] for origin in origins)


def _strings(node: cst.BaseExpression) -> list[str | None]:
    """What a device is spelled as: a string, or the arguments of `torch.device`."""
    return [string_value(arg.value) for arg in node.args] if isinstance(node, cst.Call) else [string_value(node)]


def _root(node: cst.BaseExpression) -> str:
    """The name that a chain of attributes, indices and method calls begins with."""
    while not isinstance(node, cst.Name):
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            node = node.value
        elif isinstance(node, cst.Call):
            node = node.func
        else:
            return ""
    return node.value
