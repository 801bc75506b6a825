"""Calls of functions: torch's own, NumPy's, and through the world the file's."""

from __future__ import annotations

from dataclasses import replace

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.expressions import common, inputs_of
from devlint.semantics.flow.meets import Loaded, Meet, Operand
from devlint.semantics.flow.methods import Methods
from devlint.semantics.flow.values import CPU, CPU0, EMPTY, HOST, UNKNOWN, Place, Step, Value

_NO_TENSOR = frozenset(("torch.equal", "torch.allclose"))


class Calls(Methods):
    """Evaluates calls."""

    def _Call(self, node: cst.Call) -> Value:
        if isinstance(node.func, cst.Attribute):
            method = self._method_call(node, node.func)
            if method is not None:
                return method
        name = self.world.names.qualified(node.func, self.unit)
        if name.startswith("torch."):
            return self._torch_call(node, name)
        if name.startswith(api.ARRAY_LIBRARIES):
            return self._numpy_call(node)
        return self.world.call(self, node, name)

    def _numpy_call(self, node: cst.Call) -> Value:
        for operand in self.arguments(node):
            value, kind = operand.value, ""
            if value.kind == "container" and value.items:
                value, kind = common(value), "items"
            if value.is_tensor and value.place is not None and value.place.kind == "accelerator":
                shown = Operand(operand.node, value, kind)
                self.world.notes.meet(Meet("numpy", node, self.unit, (shown,), self.in_module))
        return HOST

    def _torch_call(self, node: cst.Call, name: str) -> Value:
        if name in api.FACTORIES:
            return self._factory(node, name)
        operands = self.arguments(node)
        first = operands[0].value if operands and not operands[0].keyword else UNKNOWN
        if name == "torch.device":
            return first if first.kind == "device" else self._named_device(operands)
        if name in api.HOST_RESULTS:
            return HOST
        if name in api.CPU_CONSTRUCTORS:
            if self.world.sets_default_device and name != "torch.from_numpy":
                # The default tensor type, where somebody sets it, may be one of CUDA.
                return Value("tensor", None)
            if argument(node, "device") is not None:
                return Value("tensor", None)
            created = Step(node, self.unit, "")
            return Value("tensor", CPU, "numpy", (created,), inputs=inputs_of(operands))
        if name in api.LIKE:
            device = argument(node, "device")
            if device is None:
                return replace(first, ident=object(), name="") if first.kind == "tensor" else UNKNOWN
            place = self.device_place(device.value)
            creator = Step(node, self.unit, "like") if place == CPU else None
            return Value("tensor", place, "factory", (), creator, inputs=first.inputs) if place else UNKNOWN
        if name.startswith(api.DISTRIBUTIONS):
            drawn = self._combine("operation", node, *(o for o in operands if o.value.kind == "tensor"))
            return replace(drawn, kind="object", name=name) if drawn.kind == "tensor" else UNKNOWN
        if name == "torch.nn.utils.rnn.pad_packed_sequence":
            # The lengths come back on the CPU, wherever the data are.
            data = self._derived(first, node) if first.kind == "tensor" else Value("tensor", None)
            return Value("container", items={0: data, 1: Value("tensor", CPU, "numpy", (Step(node, self.unit, ""),))})
        if name == "torch.nn.utils.rnn.pack_padded_sequence":
            lengths = argument(node, "lengths", 1)
            value = self.value(lengths.value) if lengths is not None else UNKNOWN
            if value is UNKNOWN and lengths is not None and isinstance(lengths.value, cst.Name):
                # Lengths are a tensor or a list; what the caller moves by this name is a tensor.
                value = Value("tensor", Place("input", lengths.value.value), "parameter")
            if lengths is not None and value.is_tensor and value.place is not None:
                shown = Operand(lengths.value, value)
                self.world.notes.meet(Meet("lengths", node, self.unit, (shown,), self.in_module))
            return self._derived(first, node) if first.kind == "tensor" else UNKNOWN
        if name in api.LOSSES:
            one_a_class = name.rpartition(".")[2] in ("cross_entropy", "nll_loss")
            given = [o for o in operands if o.value.kind == "tensor"]
            return self._combine("loss", node, *(_of_classes(o) if one_a_class else o for o in given))
        if name in api.LOSS_CLASSES:
            weight = next((o for o in operands if o.keyword in ("weight", "pos_weight")), None)
            if weight is None and operands and not operands[0].keyword and first.kind == "tensor":
                weight = operands[0]
            value = weight.value if weight is not None else UNKNOWN
            one_a_class = name in ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss")
            place = CPU if one_a_class and value.place == CPU0 and not _is_number(value) else value.place
            return Value("loss", place, value.source, value.steps, value.creator, name=name)
        if name == "torch.nn.Parameter":
            return Value("tensor", first.place, "registered", first.steps, first.creator)
        if name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper():
            return self._module(node, name, operands)
        if name.startswith("torch.optim."):
            return Value("optimizer", steps=first.steps)
        if name == "torch.utils.data.TensorDataset":
            moved = any(operand.value.place not in (CPU, CPU0) for operand in operands)
            on_device = next((o.value for o in operands if _is_on_accelerator(o.value)), None)
            kept: dict[object, Value] | None = {"*": on_device} if on_device is not None else None
            return Value("host", name="on device" if moved else "", items=kept)
        if name == "torch.utils.data.DataLoader":
            step = Step(node, self.unit, "")
            held = common(replace(first, kind="container"))
            while held.kind == "container":
                held = common(held)
            if _is_on_accelerator(held):
                self.world.notes.load(Loaded(node, self.unit, held))
            return Value("loader", CPU, "factory", (step,), step) if self.world.loads_on_cpu(self, node) else UNKNOWN
        if name == "torch.broadcast_tensors":
            # It expands each tensor where it is, and so takes any mix of devices.
            return UNKNOWN
        if name in api.SEVERAL and operands:
            given = [operand for operand in operands if operand.value.kind == "tensor"]
            one = self._combine("operation", node, *given) if given else UNKNOWN
            return Value("container", items={"*": one}) if one.kind == "tensor" else UNKNOWN
        if name in api.COMBINE:
            flat: list[Operand] = []
            for operand in operands:
                items = operand.value.items if operand.value.kind == "container" else None
                inner = [Operand(operand.node, value) for value in items.values()] if items else []
                flat += inner or [operand]
            if name in api.JOINS:
                flat = [Operand(o.node, replace(o.value, place=CPU)) if o.value.place == EMPTY else o for o in flat]
            result = self._combine("operation", node, *flat)
            # Whatever the operands are, the result is a tensor.
            return Value("tensor", None, "result") if result is UNKNOWN and name not in _NO_TENSOR else result
        tensors = [operand.value for operand in operands if operand.value.kind == "tensor"]
        if len(tensors) == 1 and not any(operand.value.kind == "unknown" for operand in operands[:1]):
            return (
                self._derived(tensors[0], node) if name.count(".") == 1 or name.startswith(api.FUNCTIONAL) else UNKNOWN
            )
        if len(tensors) > 1 and name.startswith(api.FUNCTIONAL):
            return self._combine("operation", node, *(o for o in operands if o.value.kind == "tensor"))
        return UNKNOWN

    def _module(self, node: cst.Call, name: str, operands: list[Operand]) -> Value:
        """A module of torch.nn: on the CPU where it holds parameters and nothing says otherwise."""
        device = argument(node, "device")
        place = self.device_place(device.value) if device is not None else CPU
        if name in api.CONTAINERS:
            inner = [operand.value for operand in operands if operand.value.kind == "module"]
            holds = any(value.place == CPU for value in inner)
        else:
            holds = name in api.PARAMETRIC
        if not holds or self.world.default_device(node, self.unit):
            place = None
        return Value("module", place, "factory", (Step(node, self.unit, ""),), name=name)

    def _factory(self, node: cst.Call, name: str) -> Value:
        operands = self.arguments(node)
        keywords = {operand.keyword for operand in operands}
        if name == "torch.tensor" and operands:
            self.world.notes.copies.setdefault(node, []).append(operands[0].value)
        inputs = inputs_of(operands)
        step = Step(node, self.unit, "")
        if any(arg.star == "**" for arg in node.args) or keywords & {"out", "pin_memory"}:
            # Pinned memory is on the CPU on purpose.
            return Value("tensor", None)
        if _is_empty(node, name):
            # It is only a placeholder, until something is joined to it.
            placed = argument(node, "device") is not None or self.world.default_device(node, self.unit)
            return Value("tensor", None if placed else EMPTY, "factory", (step,), step)
        data = operands[0].value if operands else UNKNOWN
        device = argument(node, "device")
        if device is not None:
            place = self.device_place(device.value)
            if place is None:
                return Value("tensor", None)
            return Value("tensor", place, "factory", (step,), step, inputs=inputs)
        if name in ("torch.tensor", "torch.as_tensor") and data.kind not in ("host", "container"):
            if data.kind == "tensor":
                return replace(data, ident=object(), name="")
            if name == "torch.as_tensor" or self.world.default_device(node, self.unit):
                return Value("tensor", None)
            # A list, or a number: it may have no dimension.
            return Value("tensor", CPU0, "factory", (step,), step, inputs=inputs)
        if name == "torch.tensor" and data.kind == "container" and common(data).kind == "tensor":
            return Value("tensor", None)
        if self.world.default_device(node, self.unit):
            return Value("tensor", None)
        return Value("tensor", CPU0 if _zero_dim(node, name) else CPU, "factory", (step,), step, inputs=inputs)


def _of_classes(operand: Operand) -> Operand:
    """Classes and their weights have a dimension, though `torch.tensor(weights)` or `labels[0]` does not show it."""
    value = replace(operand.value, maybe_scalar=False)
    if operand.keyword == "weight" and value.place == CPU0 and not _is_number(value):
        value = replace(value, place=CPU)
    return Operand(operand.node, value, operand.keyword)


def _is_on_accelerator(value: Value) -> bool:
    return value.kind == "tensor" and value.place is not None and value.place.kind == "accelerator"


def _is_number(value: Value) -> bool:
    """Whether a 0-dimensional tensor was made of a literal number, rather than of something that may be a list."""
    call = value.creator.node if value.creator is not None else None
    return isinstance(call, cst.Call) and bool(call.args) and isinstance(call.args[0].value, (cst.Integer, cst.Float))


def _is_empty(node: cst.Call, name: str) -> bool:
    """Whether a factory makes a tensor of no elements, such as `torch.empty(0)` or `torch.tensor([])`."""
    if not node.args:
        return False
    value = node.args[0].value
    if name in ("torch.tensor", "torch.as_tensor"):
        return isinstance(value, cst.List) and not value.elements
    parts = (
        [part.value for part in value.elements]
        if isinstance(value, (cst.Tuple, cst.List))
        else [arg.value for arg in node.args if arg.keyword is None]
    )
    return (
        name != "torch.full"
        and name not in ("torch.arange", "torch.linspace", "torch.randint")
        and any(isinstance(part, cst.Integer) and part.value == "0" for part in parts)
    )


def _zero_dim(node: cst.Call, name: str) -> bool:
    """Whether a factory makes a tensor without dimensions: a literal number, or an empty size."""
    if not node.args:
        return True
    value = node.args[0].value
    if name in ("torch.tensor", "torch.as_tensor"):
        return not isinstance(value, (cst.List, cst.Tuple, cst.ListComp))
    if isinstance(value, (cst.Tuple, cst.List)):
        return not value.elements
    return False
