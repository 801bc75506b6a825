"""The value of an expression, and what is noted on the way to it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, string_value
from devlint.semantics.flow import api
from devlint.semantics.flow.meets import Meet, MeetKind, Operand
from devlint.semantics.flow.values import CPU, CPU0, EMPTY, HOME, HOST, META, UNKNOWN, Place, Step, Value, join, mixes
from devlint.semantics.tree import children, dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.semantics.flow.world import World

_DEPTH = 60


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
        self.literals: dict[str, object] = {}
        """Names that stand for a string or a number at the moment."""

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
        if base.kind == "container" and attribute in ("indices", "values"):
            return common(base)
        if base.kind == "module" and attribute in ("weight", "bias"):
            return Value("tensor", base.place, "registered")
        if base.kind == "module":
            return Value("module", base.place, base.source, base.steps, name=name)
        return UNKNOWN

    def _element(self, batch: Value, key: object, node: cst.CSTNode) -> Value:
        """One element of a batch, as the loader left it."""
        step = Step(node, self.unit, "")
        steps = (*batch.steps, step)
        return Value("tensor", batch.place, "element", steps, ident=(batch.ident, key))

    def _Subscript(self, node: cst.Subscript) -> Value:
        base = self.value(node.value)
        indices = [part.slice.value for part in node.slice if isinstance(part.slice, cst.Index)]
        values = [self.value(index) for index in indices]
        for part in node.slice:
            if isinstance(part.slice, cst.Slice):
                for bound in (part.slice.lower, part.slice.upper, part.slice.step):
                    self.value(bound)
        key = self.key(node)
        name = f"{dotted(node.value)}[{key!r}]" if key is not None and dotted(node.value) else ""
        if name and name in self.env:
            return self.env[name]
        if base.kind == "container":
            if base.items is not None and key is not None:
                return base.items.get(key, base.items.get("*", UNKNOWN))
            return common(base)
        if base.kind == "batch":
            return self._element(base, key, node) if key is not None else UNKNOWN
        if base.kind == "tensor":
            for index, value in zip(indices, values, strict=True):
                if value.is_tensor and not value.maybe_scalar:
                    if base.place == CPU0:
                        # Only what has a dimension is indexed.
                        base = replace(base, place=CPU)
                    self._meet("index", node, Operand(node.value, base), Operand(index, value))
                    if base.place == CPU and not mixes(base, value):
                        # It fails here: what would come of it says nothing more. (The reverse is legal.)
                        return Value("tensor", None)
            sliced = any(isinstance(part.slice, cst.Slice) for part in node.slice) or any(
                map(_adds_a_dimension, indices)
            )
            masked = any(
                (value.is_tensor and not value.maybe_scalar) or isinstance(index, (cst.UnaryOperation, cst.Comparison))
                for index, value in zip(indices, values, strict=True)
            )
            derived = self._derived(base, node)
            if derived.place == CPU0 and sliced:
                derived = replace(derived, place=CPU)
            return derived if sliced or masked else replace(derived, maybe_scalar=True)
        if base.kind == "host":
            return Value("host", inputs=base.inputs)
        if base.kind == "module":
            return Value("module", base.place, base.source, base.steps)
        return UNKNOWN

    def key(self, node: cst.Subscript) -> object:
        """The string or number by which something is indexed; None where it is not known, or is something else."""
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        index = node.slice[0].slice.value
        return constant(index) if not isinstance(index, cst.Name) else self.literals.get(index.value)

    def _derived(self, base: Value, node: cst.CSTNode) -> Value:
        return replace(base, ident=object(), name="")

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
        self._forget_empties(node.test)
        body, other = self.value(node.body), self.value(node.orelse)
        if body.kind == other.kind == "device" and api.CAPABILITY.search(self.unit_code(node.test)):
            # `"cuda" if torch.cuda.is_available() else "cpu"`: the pick is named by whoever holds it.
            places = [value.place for value in (body, other) if value.place is not None and value.place != CPU]
            return Value("device", Place("accelerator", "") if places else None)
        return self._choose(body, other, node.test)

    def _forget_empties(self, test: cst.BaseExpression) -> None:
        """Tensors without elements that a test asks about: whatever is joined to them then is joined with care."""
        for name in self.unit.below(test, cst.Name):
            if (held := self.env.get(name.value)) is not None and held.place == EMPTY:
                self.env[name.value] = UNKNOWN

    def _NamedExpr(self, node: cst.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def _Await(self, node: cst.Await) -> Value:
        return self.value(node.expression)

    def _Arg(self, node: cst.Arg) -> Value:
        return self.value(node.value)

    def _Lambda(self, node: cst.Lambda) -> Value:
        return Value("function", creator=Step(node, self.unit, ""))

    def _choose(self, one: Value, other: Value, test: cst.BaseExpression | None) -> Value:
        """The value after a branch: a capability test that moved one side decides by itself where the value is."""
        joined = join(one, other)
        if joined is not UNKNOWN or test is None:
            return joined
        if isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, cst.Is):
            # `if h is None: h = torch.zeros(…)`: whoever leaves it out gets what is made here.
            if one.kind == "tensor" and one.place == CPU and one.source == "factory":
                return one
        if "self.training" in self.unit_code(test):
            # Both are used in turn.
            behind = [side for side in (one, other) if side.source == "attribute" and side.place == CPU]
            if len(behind) == 1:
                return behind[0]
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

    def arguments(self, node: cst.Call) -> list[Operand]:
        """The arguments of a call with their values."""
        return [
            Operand(arg.value, self.value(arg.value), arg.keyword.value if arg.keyword else "") for arg in node.args
        ]

    # -- devices ---------------------------------------------------------------------------------------------------

    def _named_device(self, operands: list[Operand]) -> Value:
        if operands and dotted(operands[0].node):
            return Value("device", Place("accelerator", dotted(operands[0].node)))
        if operands and isinstance(operands[0].node, cst.FormattedString):
            return Value("device", Place("accelerator", "cuda"))
        return Value("device", None)

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


def _adds_a_dimension(index: cst.BaseExpression) -> bool:
    """Whether an index is `...` or `None`, after which a tensor has dimensions for sure."""
    return isinstance(index, cst.Ellipsis) or (isinstance(index, cst.Name) and index.value == "None")


def _literal_place(text: str) -> Place | None:
    kind = text.partition(":")[0]
    if kind == "cpu":
        return CPU
    if kind == "meta":
        return META
    if kind in ACCELERATORS and re.fullmatch(r"[a-z]+(:\d+)?", text):
        return Place("accelerator", f'"{text}"', literal=True)
    return None


def constant(node: cst.CSTNode) -> object:
    if isinstance(node, cst.Integer):
        return int(node.value, 0)
    return string_value(node)


def common(value: Value) -> Value:
    """What is known of any item of a container."""
    if value.kind != "container" or not value.items:
        return UNKNOWN
    items = list(value.items.values())
    first = items[0]
    same = all(item.kind == first.kind and item.place == first.place for item in items)
    return replace(first, ident=object()) if same else UNKNOWN


def inputs_of(operands: list[Operand]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for operand in operands:
        found |= operand.value.inputs
        if operand.value.kind == "container" and operand.value.items:
            found = found.union(*(item.inputs for item in operand.value.items.values()))
    return found
