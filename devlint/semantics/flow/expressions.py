"""The value of an expression, and what is noted on the way to it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, string_value
from devlint.semantics.flow import api
from devlint.semantics.flow.meets import Meet, MeetKind, Move, Operand
from devlint.semantics.flow.values import CPU, CPU0, HOME, HOST, META, UNKNOWN, Kind, Place, Step, Value, join, mixes
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.semantics.flow.world import World

_DEPTH = 60
_DTYPE = re.compile(r"(?:^|\.)(?:float|half|double|long|int|bool|bfloat|uint|complex)\d*$|dtype")


class Expressions:
    """Evaluates expressions in an environment of dotted names."""

    world: World
    unit: Unit
    in_module: bool
    class_node: cst.ClassDef | None

    def __init__(self) -> None:
        self.env: dict[str, Value] = {}
        self.nesting = 0
        self.building = False
        """Whether `__init__` is running: the module is then still on the CPU, where it is built."""
        self.discarded: cst.Call | None = None
        self.loop: cst.For | None = None
        self.tensor_parameters: frozenset[str] = frozenset()

    # -- the entry -----------------------------------------------------------------------------------------------

    def value(self, node: cst.CSTNode | None) -> Value:
        """The value of an expression; UNKNOWN where nothing is known of it, or it is nested too deeply."""
        if node is None or self.nesting > _DEPTH or not self.world.spend():
            return UNKNOWN
        self.nesting += 1
        try:
            method = getattr(self, "_" + type(node).__name__, None)
            return method(node) if method is not None else self._others(node)
        finally:
            self.nesting -= 1

    def _others(self, node: cst.CSTNode) -> Value:
        from devlint.semantics.tree import children

        for child in children(node):
            if isinstance(child, (cst.BaseExpression, cst.Arg, cst.Element)):
                self.value(child)
        return UNKNOWN

    # -- names and constants ---------------------------------------------------------------------------------------

    def _Name(self, node: cst.Name) -> Value:
        if node.value in self.env:
            return self.env[node.value]
        if node.value in ("True", "False", "None"):
            return HOST
        return self.world.module_value(node, self)

    def _Integer(self, node: cst.Integer) -> Value:
        return HOST

    _Float = _Imaginary = _FormattedString = _ConcatenatedString = _Integer

    def _SimpleString(self, node: cst.SimpleString) -> Value:
        text = string_value(node)
        place = _literal_place(text) if text else None
        return Value("device", place) if place is not None else HOST

    def _Attribute(self, node: cst.Attribute) -> Value:
        name = dotted(node)
        if name and name in self.env:
            return self.env[name]
        attribute = node.attr.value
        if name.startswith("self.") and name.count(".") == 1 and self.class_node is not None:
            return self.world.attribute(self.unit, self.class_node, attribute)
        base = self.value(node.value)
        if attribute == "device":
            if base.kind in ("tensor", "module") and base.place is not None:
                if base.kind == "tensor":
                    self.world.notes.devices.add(node)
                place = CPU if base.place == CPU0 else base.place
                return Value("device", place, name=base.name)
            return Value("device", None)
        if base.kind == "tensor":
            if attribute in ("data", "grad", "T", "mT", "H", "real", "imag"):
                return replace(base, ident=object())
            return Value("host", inputs=base.inputs) if attribute in ("shape", "ndim", "dtype", "is_cuda") else UNKNOWN
        if base.kind == "batch":
            return self._element(base, "." + attribute, node)
        if base.kind == "module" and attribute in ("weight", "bias"):
            return Value("tensor", base.place, "registered")
        if base.kind == "module":
            return Value("module", base.place, base.source, name=name)
        return UNKNOWN

    def _element(self, batch: Value, key: object, node: cst.CSTNode) -> Value:
        """One element of a batch, as the loader left it."""
        name = self.unit.code(node) if self.world.wants_names else ""
        step = Step(node, self.unit, "")
        steps = (*batch.steps, step)
        return Value("tensor", batch.place, "element", steps, name=name, ident=(batch.ident, key))

    def _Subscript(self, node: cst.Subscript) -> Value:
        base = self.value(node.value)
        indices = [part.slice.value for part in node.slice if isinstance(part.slice, cst.Index)]
        values = [self.value(index) for index in indices]
        for part in node.slice:
            if isinstance(part.slice, cst.Slice):
                for bound in (part.slice.lower, part.slice.upper, part.slice.step):
                    self.value(bound)
        key = _constant(indices[0]) if len(indices) == 1 else None
        name = f"{dotted(node.value)}[{key!r}]" if key is not None and dotted(node.value) else ""
        if name and name in self.env:
            return self.env[name]
        if base.kind == "container":
            if base.items is not None and key is not None:
                return base.items.get(key, base.items.get("*", UNKNOWN))
            return _common(base)
        if base.kind == "batch":
            return self._element(base, key, node) if key is not None else UNKNOWN
        if base.kind == "tensor":
            for index, value in zip(indices, values, strict=True):
                if value.is_tensor and not value.maybe_scalar:
                    self._meet("index", node, Operand(node.value, base), Operand(index, value))
            sliced = any(isinstance(part.slice, cst.Slice) for part in node.slice)
            masked = any(
                (value.is_tensor and not value.maybe_scalar) or isinstance(index, (cst.UnaryOperation, cst.Comparison))
                for index, value in zip(indices, values, strict=True)
            )
            derived = self._derived(base, node)
            return derived if sliced or masked else replace(derived, maybe_scalar=True)
        if base.kind == "host":
            return Value("host", inputs=base.inputs)
        if base.kind == "module":
            return Value("module", base.place, base.source, base.steps)
        return UNKNOWN

    def _derived(self, base: Value, node: cst.CSTNode) -> Value:
        return replace(base, ident=object(), name="")

    # -- containers ------------------------------------------------------------------------------------------------

    def _Tuple(self, node: cst.Tuple) -> Value:
        items: dict[object, Value] = {}
        for index, element in enumerate(node.elements):
            value = self.value(element.value)
            if isinstance(element, cst.StarredElement):
                items[index] = _common(value) if value.kind == "container" else UNKNOWN
            else:
                items[index] = value
        return Value("container", items=items)

    _List = _Set = _Tuple

    def _StarredElement(self, node: cst.StarredElement) -> Value:
        return self.value(node.value)

    def _Dict(self, node: cst.Dict) -> Value:
        items: dict[object, Value] = {}
        for element in node.elements:
            value = self.value(element.value)
            if isinstance(element, cst.DictElement):
                key = _constant(element.key)
                items[key if key is not None else element] = value
        return Value("container", items=items)

    def _ListComp(self, node: cst.ListComp) -> Value:
        return self._comprehension(node.for_in, node.elt)

    _GeneratorExp = _SetComp = _ListComp

    def _DictComp(self, node: cst.DictComp) -> Value:
        return self._comprehension(node.for_in, node.value)

    def _comprehension(self, loop: cst.CompFor, element: cst.BaseExpression) -> Value:
        saved = dict(self.env)
        self._bind_loop(loop)
        value = self.value(element)
        self.env = saved
        if value.kind in ("tensor", "module", "container"):
            # The elements share what is known of one; keys are not.
            return Value("container", items={"*": replace(value, ident=object())})
        return UNKNOWN

    def _bind_loop(self, loop: cst.CompFor) -> None:
        current: cst.CompFor | None = loop
        while current is not None:
            self.bind(current.target, self.iterated(current.iter))
            for condition in current.ifs:
                self.value(condition.test)
            current = current.inner_for_in

    def bind(self, target: cst.CSTNode, value: Value) -> None:
        """Give the value to an assignment target."""
        raise AssertionError("defined by the interpreter")

    def iterated(self, node: cst.BaseExpression) -> Value:
        """What one round of a loop over `node` yields."""
        raise AssertionError("defined by the interpreter")

    # -- operators -------------------------------------------------------------------------------------------------

    def _BinaryOperation(self, node: cst.BinaryOperation) -> Value:
        # A long sum nests to the left: walk down instead of recursing.
        chain: list[cst.BinaryOperation] = [node]
        while isinstance(chain[-1].left, cst.BinaryOperation):
            chain.append(chain[-1].left)
        result, left = self.value(chain[-1].left), chain[-1].left
        for operation in reversed(chain):
            right = self.value(operation.right)
            result = self._combine("operation", operation, Operand(left, result), Operand(operation.right, right))
            left = operation
        return result

    def _Comparison(self, node: cst.Comparison) -> Value:
        operands = [Operand(node.left, self.value(node.left))]
        operands += [Operand(part.comparator, self.value(part.comparator)) for part in node.comparisons]
        if any(isinstance(part.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) for part in node.comparisons):
            return HOST
        return self._combine("operation", node, *operands)

    def _UnaryOperation(self, node: cst.UnaryOperation) -> Value:
        value = self.value(node.expression)
        if isinstance(node.operator, cst.Not):
            return HOST
        return self._derived(value, node) if value.kind == "tensor" else value

    def _BooleanOperation(self, node: cst.BooleanOperation) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        return join(left, right)

    def _IfExp(self, node: cst.IfExp) -> Value:
        self.value(node.test)
        body, other = self.value(node.body), self.value(node.orelse)
        if body.kind == other.kind == "device" and api.CAPABILITY.search(self.unit_code(node.test)):
            # `"cuda" if torch.cuda.is_available() else "cpu"`: the pick is named by whoever holds it.
            places = [value.place for value in (body, other) if value.place is not None and value.place != CPU]
            return Value("device", Place("accelerator", "") if places else None)
        return self._choose(body, other, node.test)

    def _NamedExpr(self, node: cst.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def _Await(self, node: cst.Await) -> Value:
        return self.value(node.expression)

    def _Arg(self, node: cst.Arg) -> Value:
        return self.value(node.value)

    def _Lambda(self, node: cst.Lambda) -> Value:
        return UNKNOWN

    def _choose(self, one: Value, other: Value, test: cst.BaseExpression | None) -> Value:
        """The value after a branch: a capability test that moved one side decides by itself where the value is."""
        joined = join(one, other)
        if joined is not UNKNOWN or test is None:
            return joined
        for moved, kept in ((one, other), (other, one)):
            same = moved.kind in ("tensor", "module", "batch") and kept.kind in (moved.kind, "unknown")
            if same and moved.place is not None and moved.place.kind == "accelerator":
                if kept.place is None or kept.place.kind != "accelerator":
                    if api.CAPABILITY.search(self.unit_code(test)):
                        return replace(moved, guarded=True)
        return UNKNOWN

    def unit_code(self, node: cst.CSTNode) -> str:
        """The text of a node, for words in it."""
        return cst.Module(body=[]).code_for_node(node)

    def _meet(self, kind: MeetKind, node: cst.CSTNode, *operands: Operand) -> None:
        known = [operand for operand in operands if operand.value.place is not None]
        if len(known) < 2 or (self.building and any(operand.value.place == HOME for operand in known)):
            return
        if all(mixes(a.value, b.value) for a in known for b in known):
            if not any(self._stale(a.value, b.value) for a in known for b in known):
                return
        self.world.notes.meet(Meet(kind, node, self.unit, tuple(known), self.in_module))

    def _stale(self, one: Value, other: Value) -> bool:
        """Whether `one` is what a parameter was before it was moved, and `other` is on the device."""
        moved = self.env.get("moved " + str(id(one.ident)))
        return moved is not None and other.place is not None and other.place.kind == "accelerator"

    def _combine(self, kind: MeetKind, node: cst.CSTNode, *operands: Operand) -> Value:
        """The result of an operation on `operands`: a tensor where those are that have dimensions."""
        tensors = [operand for operand in operands if operand.value.kind == "tensor"]
        if not tensors:
            if all(operand.value.kind == "host" for operand in operands):
                return Value("host", inputs=frozenset().union(*(operand.value.inputs for operand in operands)))
            return UNKNOWN
        self._meet(kind, node, *tensors)
        if any(operand.value.kind == "unknown" for operand in operands) and len(tensors) < 2:
            # An unknown operand may be a tensor somewhere else, or a number.
            known = tensors[0].value
            return self._derived(known, node) if known.place not in (None, CPU0) else UNKNOWN
        places = [operand.value for operand in tensors if operand.value.place is not None]
        if len(places) < len(tensors):
            return UNKNOWN
        for wanted in ("accelerator", "home", "input", "cpu", "cpu0", "meta"):
            for value in places:
                if value.place is not None and value.place.kind == wanted:
                    merged = frozenset().union(*(other.inputs for other in places))
                    return replace(value, ident=object(), name="", inputs=merged)
        return UNKNOWN

    # -- calls -----------------------------------------------------------------------------------------------------

    def _Call(self, node: cst.Call) -> Value:
        if isinstance(node.func, cst.Attribute):
            method = self._method_call(node, node.func)
            if method is not None:
                return method
        name = self.world.names.qualified(node.func, self.unit)
        if name.startswith("torch."):
            return self._torch_call(node, name)
        if name.startswith(("numpy.", "np.")):
            return self._numpy_call(node)
        return self.world.call(self, node, name)

    def arguments(self, node: cst.Call) -> list[Operand]:
        """The arguments of a call with their values."""
        return [
            Operand(arg.value, self.value(arg.value), arg.keyword.value if arg.keyword else "") for arg in node.args
        ]

    def _numpy_call(self, node: cst.Call) -> Value:
        for operand in self.arguments(node):
            value, kind = operand.value, ""
            if value.kind == "container" and value.items:
                value, kind = _common(value), "items"
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
        if name in api.CPU_CONSTRUCTORS:
            if self.world.sets_default_device and name != "torch.from_numpy":
                # The default tensor type, where somebody sets it, may be one of CUDA.
                return Value("tensor", None)
            created = Step(node, self.unit, "")
            return Value("tensor", CPU, "numpy", (created,), inputs=_inputs(operands))
        if name in api.LIKE:
            device = argument(node, "device")
            if device is None:
                return replace(first, ident=object(), name="") if first.kind == "tensor" else UNKNOWN
            place = self.device_place(device.value)
            creator = Step(node, self.unit, "like") if place == CPU else None
            return Value("tensor", place, "factory", (), creator, inputs=first.inputs) if place else UNKNOWN
        if name == "torch.nn.utils.rnn.pack_padded_sequence":
            lengths = argument(node, "lengths", 1)
            value = self.value(lengths.value) if lengths is not None else UNKNOWN
            if value is UNKNOWN and lengths is not None and isinstance(lengths.value, cst.Name):
                # Lengths are a tensor or a list; what the caller moves by this name is a tensor.
                value = Value("tensor", Place("input", lengths.value.value), "parameter")
            if lengths is not None and value.is_tensor and value.place is not None:
                shown = Operand(lengths.value, value)
                self.world.notes.meet(Meet("lengths", node, self.unit, (shown,), self.in_module))
            return UNKNOWN
        if name in api.LOSSES:
            return self._combine("loss", node, *(o for o in operands if o.value.kind == "tensor"))
        if name in api.LOSS_CLASSES:
            weight = next((o for o in operands if o.keyword in ("weight", "pos_weight")), None)
            if weight is None and operands and not operands[0].keyword and first.kind == "tensor":
                weight = operands[0]
            value = weight.value if weight is not None else UNKNOWN
            place = CPU if value.place == CPU0 and not _is_number(value) else value.place
            return Value("loss", place, value.source, value.steps, value.creator, name=name)
        if name == "torch.nn.Parameter":
            return Value("tensor", first.place, "registered", first.steps, first.creator)
        if name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper():
            return self._module(node, name, operands)
        if name.startswith("torch.optim."):
            return Value("optimizer", steps=first.steps)
        if name == "torch.utils.data.TensorDataset":
            moved = any(operand.value.place not in (CPU, CPU0) for operand in operands)
            return Value("host", name="on device" if moved else "")
        if name == "torch.utils.data.DataLoader":
            step = Step(node, self.unit, "")
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
            return self._combine("operation", node, *flat)
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

    def _named_device(self, operands: list[Operand]) -> Value:
        if operands and dotted(operands[0].node):
            return Value("device", Place("accelerator", dotted(operands[0].node)))
        if operands and isinstance(operands[0].node, cst.FormattedString):
            return Value("device", Place("accelerator", "cuda"))
        return Value("device", None)

    def _factory(self, node: cst.Call, name: str) -> Value:
        operands = self.arguments(node)
        keywords = {operand.keyword for operand in operands}
        inputs = _inputs(operands)
        step = Step(node, self.unit, "")
        if any(arg.star == "**" for arg in node.args) or keywords & {"out", "pin_memory"} or _is_empty(node, name):
            # Pinned memory is on the CPU on purpose; what has no elements is only a placeholder.
            return Value("tensor", None)
        device = argument(node, "device")
        if device is not None:
            place = self.device_place(device.value)
            if place is None:
                return Value("tensor", None)
            return Value("tensor", place, "factory", (step,), step, inputs=inputs)
        data = operands[0].value if operands else UNKNOWN
        if name in ("torch.tensor", "torch.as_tensor") and data.kind not in ("host", "container"):
            if data.kind == "tensor":
                return replace(data, ident=object(), name="")
            if name == "torch.as_tensor" or self.world.default_device(node, self.unit):
                return Value("tensor", None)
            # A list, or a number: it may have no dimension.
            return Value("tensor", CPU0, "factory", (step,), step, inputs=inputs)
        if name == "torch.tensor" and data.kind == "container" and _common(data).kind == "tensor":
            return Value("tensor", None)
        if self.world.default_device(node, self.unit):
            return Value("tensor", None)
        return Value("tensor", CPU0 if _zero_dim(node, name) else CPU, "factory", (step,), step, inputs=inputs)

    def device_place(self, node: cst.BaseExpression) -> Place | None:
        """The place that an expression names, used as a device; None where that is not known."""
        value = self.value(node)
        text = dotted(node)
        if value.kind == "device":
            if value.place is not None and value.place.kind == "accelerator" and not value.place.symbol:
                return replace(value.place, symbol=text or "device")
            if value.place is not None:
                return value.place
            return Place("accelerator", text) if self._names_a_device(text) else None
        if value.kind == "tensor":
            return value.place
        if isinstance(node, cst.Call) and dotted(node.func).rpartition(".")[2] in ("current_device", "get_device"):
            return None
        if self._names_a_device(text) and value.kind in ("unknown", "host"):
            return Place("accelerator", text)
        return None

    def _names_a_device(self, text: str) -> bool:
        """Whether a dotted name is that of a device: a variable, or an entry of `self` or of some options."""
        root, _, last = text.rpartition(".")
        if not api.DEVICE_NAME.search(last):
            return False
        # `x.device` of something unknown is wherever x is, which may be the CPU.
        return not root or api.OPTIONS_NAME.search(root) is not None

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
            if method in ("eval", "train", "requires_grad_", "float", "half", "double", "apply", "bfloat16"):
                return base
            if method in ("parameters", "state_dict", "named_parameters", "buffers", "children", "modules"):
                return Value("container", items={"*": Value("tensor", base.place, "registered", base.steps)})
            return UNKNOWN
        if base.kind == "batch" and method in ("items", "values"):
            element = self._element(base, "*", node)
            pair = Value("container", items={0: HOST, 1: element}) if method == "items" else element
            return Value("container", items={"*": pair})
        if base.kind == "batch" and method in ("get", "pop") and node.args:
            key = _constant(node.args[0].value)
            return self._element(base, key, node) if key is not None else UNKNOWN
        if base.kind == "container":
            operands = self.arguments(node)
            if method == "append" and len(operands) == 1:
                self._append(func.value, base, operands[0].value)
                return HOST
            if method in ("items", "values"):
                common = _common(base)
                pair = Value("container", items={0: HOST, 1: common}) if method == "items" else common
                return Value("container", items={"*": pair})
            return UNKNOWN
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
            return Value("tensor", place, "result", inputs=base.inputs | _inputs(operands))
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
                return replace(derived, maybe_scalar=False)
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
            held = dotted(node.func.value) if isinstance(node.func, cst.Attribute) else ""
            kind: Kind = "module" if api.MODULE_NAME.search(held) else "tensor"
            result = Value(kind, place, "moved", (step,))
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


def _literal_place(text: str) -> Place | None:
    kind = text.partition(":")[0]
    if kind == "cpu":
        return CPU
    if kind == "meta":
        return META
    if kind in ACCELERATORS and re.fullmatch(r"[a-z]+(:\d+)?", text):
        return Place("accelerator", f'"{text}"', literal=True)
    return None


def _constant(node: cst.CSTNode) -> object:
    if isinstance(node, cst.Integer):
        return int(node.value, 0)
    return string_value(node)


def _is_number(value: Value) -> bool:
    """Whether a 0-dimensional tensor was made of a literal number, rather than of something that may be a list."""
    call = value.creator.node if value.creator is not None else None
    return isinstance(call, cst.Call) and bool(call.args) and isinstance(call.args[0].value, (cst.Integer, cst.Float))


def _common(value: Value) -> Value:
    """What is known of any item of a container."""
    if value.kind != "container" or not value.items:
        return UNKNOWN
    items = list(value.items.values())
    first = items[0]
    same = all(item.kind == first.kind and item.place == first.place for item in items)
    return replace(first, ident=object()) if same else UNKNOWN


def _inputs(operands: list[Operand]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for operand in operands:
        found |= operand.value.inputs
        if operand.value.kind == "container" and operand.value.items:
            found = found.union(*(item.inputs for item in operand.value.items.values()))
    return found


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
