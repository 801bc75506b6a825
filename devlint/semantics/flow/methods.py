"""Calls of methods: moves, and what tensors, modules, batches and containers answer."""

from __future__ import annotations

import re
from dataclasses import replace

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.displays import Displays
from devlint.semantics.flow.expressions import common, constant, inputs_of
from devlint.semantics.flow.meets import Meet, Move, Operand
from devlint.semantics.flow.values import CPU, CPU0, HOST, UNKNOWN, Kind, Place, Step, Value
from devlint.semantics.tree import dotted

_SELF_METHODS = frozenset("eval train requires_grad_ float half double apply bfloat16".split())
"""Methods of a module that return it."""
_DTYPE = re.compile(r"(?:^|\.)(?:float|half|double|long|int|bool|bfloat|uint|complex)\d*$|dtype")


class Methods(Displays):
    """Evaluates calls of the methods of known values."""

    def _method_call(self, node: cst.Call, func: cst.Attribute) -> Value | None:
        """A call of a method of a value that is known; None where it is no such call."""
        if self.world.names.qualified(func, self.unit):
            return None
        base = self.value(func.value)
        method = func.attr.value
        if method in ("to", "cuda", "cpu", "type_as", "xpu", "mps") and base.kind != "host":
            return self._move(node, base, method)
        if base.kind == "tensor":
            return self._tensor_method(node, func, base, method)
        if base.kind in ("module", "loss"):
            for arg in node.args:
                self.value(arg.value)
            if method in _SELF_METHODS:
                return base
            if method in ("parameters", "state_dict", "named_parameters", "buffers", "children", "modules"):
                return Value("container", items={"*": Value("tensor", base.place, "registered", base.steps)})
            return self.world.call_method(self, node, base, func)
        if base.kind == "batch" and method in ("items", "values"):
            element = self._element(base, "*", node)
            pair = Value("container", items={0: HOST, 1: element}) if method == "items" else element
            return Value("container", items={"*": pair})
        if base.kind == "batch" and method in ("get", "pop") and node.args:
            key = constant(node.args[0].value)
            return self._element(base, key, node) if key is not None else UNKNOWN
        if base.kind == "container":
            operands = self.arguments(node)
            if method == "append" and len(operands) == 1:
                self._append(func.value, base, operands[0].value)
                return HOST
            if method == "extend" and len(operands) == 1:
                given = operands[0].value
                part = self._derived(given, node) if given.kind == "tensor" else common(given)
                self._append(func.value, base, part)
                return HOST
            if method in ("items", "values"):
                shared = common(base)
                pair = Value("container", items={0: HOST, 1: shared}) if method == "items" else shared
                return Value("container", items={"*": pair})
            return UNKNOWN
        if base.kind == "object" and base.name.startswith(api.DISTRIBUTIONS) and method in ("sample", "rsample"):
            return replace(base, kind="tensor", ident=object(), name="")
        if base.kind in ("object", "unknown") and dotted(func.value) not in ("self", "cls", "super"):
            result = self.world.call_method(self, node, base, func)
            if result is UNKNOWN and method == "unsqueeze":
                self.arguments(node)
                return Value("tensor", base.place, "result")
            return result if result is not UNKNOWN else None
        return None

    def _append(self, target: cst.BaseExpression, base: Value, value: Value) -> None:
        name = dotted(target)
        if not name:
            return
        items = dict(base.items) if base.items is not None else {}
        if len(items) < 16:
            items[len(items)] = value
            self.env[name] = replace(base, items=items)
        else:
            self.env[name] = Value("container")

    def _tensor_method(self, node: cst.Call, func: cst.Attribute, base: Value, method: str) -> Value:
        operands = self.arguments(node)
        if method in ("numpy", "__array__"):
            if base.place is not None and base.place.kind == "accelerator":
                shown = Operand(func.value, base)
                self.world.notes.meet(Meet("numpy", node, self.unit, (shown,), self.in_module))
            return HOST
        if method in api.HOST_METHODS:
            return Value("host", inputs=base.inputs)
        if method in api.NEW:
            device = argument(node, "device")
            place = self.device_place(device.value) if device is not None else base.place
            return Value("tensor", place, "result", inputs=base.inputs | inputs_of(operands))
        if method == "copy_":
            return base
        if method == "type" and not all(
            re.search(r"\.(?:float|int|uint|bool|half|double|long)\d*$", self.unit_code(o.node)) for o in operands
        ):
            # A tensor type, perhaps of another device, or a name that may hold one.
            return UNKNOWN
        if method in api.COMBINE_METHODS:
            tensors = [o for o in operands if o.value.kind == "tensor"]
            result = self._combine("operation", node, Operand(func.value, base), *tensors)
            return result if tensors else self._derived(base, node)
        if method in api.KEEP_METHODS:
            derived = self._derived(base, node)
            if method in ("max", "min", "sort", "topk", "nonzero", "split", "chunk", "unbind"):
                if self._several(node, method):
                    return Value("container", items={"*": derived})
            if method in ("argsort", "nonzero", "unsqueeze", "view", "reshape", "expand", "repeat", "flatten"):
                place = CPU if base.place == CPU0 and operands else base.place
                return replace(derived, maybe_scalar=False, place=place)
            whole = method in api.REDUCTIONS and not any(o.keyword in ("", "dim", "axis") for o in operands)
            return replace(derived, maybe_scalar=base.maybe_scalar or whole)
        return UNKNOWN

    def _several(self, node: cst.Call, method: str) -> bool:
        if method in ("max", "min"):
            return bool(node.args)
        if method == "nonzero":
            return argument(node, "as_tuple") is not None
        return True

    def _move(self, node: cst.Call, base: Value, method: str) -> Value:
        step = Step(node, self.unit, "")
        place: Place | None
        if method == "cpu":
            place = CPU
        elif method in ("cuda", "xpu", "mps"):
            index = argument(node, "device", 0)
            for arg in node.args:
                self.value(arg.value)
            symbol = self.unit_code(index.value) if index is not None else method
            place = Place("accelerator", symbol, literal=index is None)
        else:
            target = argument(node, "device", 0) or argument(node, "other", 0)
            for arg in node.args:
                self.value(arg.value)
            if target is None or any(arg.star for arg in node.args):
                return UNKNOWN if target is None and not argument(node, "dtype") else base
            text = self.unit_code(target.value)
            if _DTYPE.search(text):
                return base
            place = self.device_place(target.value)
        if base.kind == "unknown":
            if place is None or method == "type_as":
                return UNKNOWN
            held = _root(node.func)
            made = node.func.value if isinstance(node.func, cst.Attribute) else None
            of_class = dotted(made.func).rpartition(".")[2][:1].isupper() if isinstance(made, cst.Call) else False
            kind: Kind = "module" if of_class or api.MODULE_NAME.search(held) else "tensor"
            result = Value(kind, place, "assumed", (step,))
        elif base.kind == "device":
            return base
        else:
            if place == CPU and base.place == CPU0:
                place = CPU0
            result = base.at(place, step)
        if base.kind in ("module", "loss", "batch", "unknown", "tensor", "container"):
            discarded = node is self.discarded
            self.world.notes.move(Move(node, self.unit, base, result, discarded, self.loop))
        if base.kind == "tensor" and base.source in ("parameter",) and place is not None:
            self.env["moved " + str(id(base.ident))] = result
        if base.kind in ("module", "loss") or (base.kind in ("unknown", "batch") and node is self.discarded):
            name = dotted(node.func.value) if isinstance(node.func, cst.Attribute) else ""
            if name and node is self.discarded and base.kind in ("unknown",):
                # A statement `model.to(device)` moves a module in place; of a tensor it would be the bug of TDL102.
                result = replace(result, kind="module" if api.MODULE_NAME.search(name) else "unknown")
                if result.kind == "unknown":
                    return UNKNOWN
            if name and result.kind in ("module", "loss"):
                self.env[name] = result
        return result


def _root(func: cst.BaseExpression) -> str:
    """The name that methods of modules are called on in a row, as in `model.half().eval().cuda`."""
    node = func.value if isinstance(func, cst.Attribute) else func
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SELF_METHODS:
        node = node.func.value
    return dotted(node)
