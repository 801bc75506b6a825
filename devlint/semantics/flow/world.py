"""All that the interpreter knows of one file: it runs the functions and the module level, and follows calls."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import MOVES_OR_DEVICE, pattern_of, string_value
from devlint.semantics.flow import api
from devlint.semantics.flow.helpers import Helper, Helpers, brought_home
from devlint.semantics.flow.interpreter import Run
from devlint.semantics.flow.meets import Notes, Operand
from devlint.semantics.flow.values import CPU, HOME, UNKNOWN, Step, Value
from devlint.semantics.project import find, imported_names
from devlint.semantics.tree import dotted
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.expressions import Expressions

_BUDGET = 60_000


class World(Helpers):
    """The interpreter's view of one file."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self.notes = Notes()
        self.sets_default_device = not file.words.isdisjoint(("set_default_device", "set_default_tensor_type"))
        self._left = _BUDGET
        self._module_env: dict[str, Value] | None = None
        self._done: set[Unit] = set()

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names that the file imports from its own project."""
        return imported_names(self.file.source.path, self.names)

    def _world(self) -> World:
        return self

    def spend(self) -> bool:
        """Take one step; False once a unit has used up what one may cost."""
        self._left -= 1
        return self._left > 0

    def interpret(self, unit: Unit) -> None:
        """Run every function of a unit, or its module-level statements, once."""
        if unit in self._done:
            return
        self._done.add(unit)
        self._left = _BUDGET
        if not unit.name:
            self.module_env()
            return
        for node in unit.module.body:
            if isinstance(node, cst.FunctionDef):
                self.run_function(unit, node, None)
            elif isinstance(node, cst.ClassDef):
                self._run_class(unit, node)

    def _run_class(self, unit: Unit, node: cst.ClassDef) -> None:
        self._initialise(unit, node)
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value != "__init__":
                self.run_function(unit, statement, node)
            elif isinstance(statement, cst.ClassDef):
                self._run_class(unit, statement)

    def run_function(self, unit: Unit, node: cst.FunctionDef, owner: cst.ClassDef | None) -> None:
        run = Run(
            self, unit, class_node=owner, in_module=owner is not None and self.is_module(unit, owner), function=node
        )
        run.building = owner is not None and node.name.value == "__init__"
        self._active.append(node)
        run.parameters(node, {})
        run.suite(node.body)
        self._active.pop()

    def module_env(self) -> dict[str, Value]:
        """The names of the module level, after it has run."""
        if self._module_env is None:
            self._module_env = {}
            env: dict[str, Value] = {}
            for unit in self.file.units:
                if not unit.name:
                    self._done.add(unit)
                    try:
                        run = Run(self, unit)
                        run.env = env
                        run.block(unit.module.body)
                        env = run.env
                    except UnitTooDeep:
                        continue
            self._module_env = env
        return self._module_env

    def module_value(self, node: cst.Name, run: Expressions) -> Value:
        """The value of a name that the function itself does not bind."""
        if isinstance(run, Run) and run.function is None:
            return UNKNOWN
        if node.value in self.names.aliases or not any(
            node.value in unit.words for unit in self.file.units if not unit.name
        ):
            return UNKNOWN
        value = self.module_env().get(node.value, UNKNOWN)
        if value.kind == "tensor" and value.place == CPU and value.source in ("factory", "numpy"):
            return replace(value, source="constant", creator=None)
        return value if value.kind in ("device", "loss", "module", "loader", "optimizer", "host") else UNKNOWN

    def default_device(self, node: cst.CSTNode, unit: Unit) -> bool:
        """Whether something else than the CPU may be the default device at `node`."""
        if self.sets_default_device:
            return True
        above = unit.enclosing(node, cst.With)
        while above is not None:
            for item in above.items:
                text = dotted(item.item.func) if isinstance(item.item, cst.Call) else dotted(item.item)
                if re.search(r"device", text, re.I) and not text.endswith(("cuda.device", "on_device")):
                    return True
                if re.search(r"init_empty_weights|meta|on_device|FakeTensorMode|zero\.Init", text):
                    return True
            above = unit.enclosing(above, cst.With)
        return False

    def call(self, run: Expressions, node: cst.Call, qualified: str) -> Value:
        """The result of a call of something that is not torch's own."""
        assert isinstance(run, Run)
        text = dotted(node.func)
        if text == "self.register_buffer" and run.class_node is not None and len(node.args) > 1:
            return self._register(run, node)
        if text in ("setattr", "getattr") and len(node.args) > 1 and dotted(node.args[0].value) == "self":
            return self._by_name(run, node)
        callee = run.value(node.func) if not isinstance(node.func, cst.Name) else run.env.get(text, UNKNOWN)
        if isinstance(node.func, cst.Name) and text not in run.env:
            callee = self.module_value(node.func, run)
        operands = run.arguments(node)
        if callee.kind in ("module", "loss"):
            return self._apply(run, node, callee, operands)
        if text in ("copy.deepcopy", "deepcopy", "iter") and operands:
            return operands[0].value
        if text == "zip" and any(arg.star for arg in node.args):
            # A transposition: each of its items is a tuple.
            return Value("container", items={"*": Value("container")})
        if node.args and text.rpartition(".")[2] in (*api.WRAPPERS, "enumerate", "zip"):
            item = run.iterated(node)
            return Value("container", items={"*": item}) if item is not UNKNOWN else UNKNOWN
        if text == "next" and operands and operands[0].value.kind == "loader" and not self.framework:
            return Value("batch", CPU, "element", operands[0].value.steps)
        if text in ("len", "int", "float", "max", "min", "range", "sum", "bool", "str", "print"):
            inputs = frozenset().union(*(operand.value.inputs for operand in operands))
            if text == "len" and operands and operands[0].value.kind == "tensor" and dotted(operands[0].node):
                inputs |= {dotted(operands[0].node)}
            return Value("host", inputs=inputs)
        if text.rpartition(".")[2] == "partial" and operands:
            return self._partial(run, operands)
        self._hand_out(run, operands)
        helper = self.helper(run, node, callee)
        if helper is not None:
            return self.run_helper(run, helper, operands, node)
        if qualified:
            return self._imported(run, node, qualified, operands)
        built = self.class_named(text)
        if built is not None:
            step = Step(node, run.unit, "")
            if self.is_module(*built):
                place = CPU if self.begins_on_cpu(*built) else None
                return Value("module", place, "factory", (step,), name=text, defined=built)
            return Value("object", None, "factory", (step,), name=text, defined=built)
        if api.LOSS_NAME.search(text) and "ctc" not in text.lower():
            return run._combine("loss", node, *(o for o in operands if o.value.kind == "tensor"))
        if api.MODULE_NAME.search(text) and text != "super":
            return self._apply(run, node, Value("module", None, name=text), operands)
        return UNKNOWN

    def _hand_out(self, run: Run, operands: list[Operand]) -> None:
        """Modules that something else gets hold of: it may move them, and wrap what is moved later."""
        given = {id(operand.value.ident) for operand in operands if operand.value.kind == "module"}
        for name, value in run.env.items() if given else ():
            if value.place == CPU and id(value.ident) in given:
                run.env[name] = replace(value, place=None)

    def _imported(self, run: Run, node: cst.Call, qualified: str, operands: list[Operand]) -> Value:
        """The result of a call of what another file of the project defines, as far as it can be told from outside."""
        if api.LIBRARY_MODULES.fullmatch(qualified):
            elsewhere = argument(node, "device_map") or argument(node, "device") or any(arg.star for arg in node.args)
            place = None if elsewhere or self.default_device(node, run.unit) else CPU
            return Value("module", place, "factory", (Step(node, run.unit, ""),), name=qualified)
        if run.depth:
            return UNKNOWN
        found = find(self.file.source.path, qualified)
        if found is None:
            return UNKNOWN
        file, name = found
        world = file.placement.world
        step = Step(node, run.unit, "")
        defined = world.class_named(name)
        if defined is not None:
            unit, owner = defined
            settled = (
                world.is_module(unit, owner)
                and world.begins_on_cpu(unit, owner)
                and not MOVES_OR_DEVICE.search(unit.text)
            )
            return Value("module", CPU, "factory", (step,), name=name) if settled else UNKNOWN
        function = world.function(name)
        if function is None:
            return UNKNOWN
        world._left = _BUDGET // 4
        try:
            result = world.run_helper(run, Helper(*function), operands, node)
        except UnitTooDeep:
            return UNKNOWN
        return brought_home(result, step)

    def call_method(self, run: Expressions, node: cst.Call, base: Value, func: cst.Attribute) -> Value:
        """The result of a call of a method that the file defines for what `base` is."""
        assert isinstance(run, Run)
        helper = self.method_of(run, base, func, node)
        return self.run_helper(run, helper, run.arguments(node), node) if helper is not None else UNKNOWN

    def _partial(self, run: Run, operands: list[Operand]) -> Value:
        """`partial(f, …)` of a function of the file."""
        function, given = operands[0].value, operands[1:]
        found = self.function(dotted(operands[0].node))
        if function.kind == "unknown" and found is not None:
            function = Value("function", creator=Step(found[1], found[0], ""))
        if function.kind != "function":
            return UNKNOWN
        items: dict[object, Value] = dict(function.items or {})
        before = sum(str(key).isdigit() for key in items)
        items.update({operand.keyword or str(index): operand.value for index, operand in enumerate(given, before)})
        return replace(function, items=items)

    def _by_name(self, run: Run, node: cst.Call) -> Value:
        """`setattr(self, f"mask{i}", …)` and `getattr(self, f"mask{i}")`: all attributes of one pattern are one."""
        name = pattern_of(node.args[1].value)
        values = [run.value(arg.value) for arg in node.args[2:]]
        if not name or run.class_node is None:
            return UNKNOWN
        if dotted(node.func) == "setattr":
            run.env["self." + name] = values[0] if values else UNKNOWN
            self.note_attribute(run, node, name, run.env["self." + name])
            return UNKNOWN
        return run.env.get("self." + name) or self.attribute(run.unit, run.class_node, name)

    def _register(self, run: Run, node: cst.Call) -> Value:
        name = argument(node, "name", 0)
        for arg in node.args:
            run.value(arg.value)
        text = string_value(name.value) if name is not None else None
        if text and run.class_node is not None:
            value = Value("tensor", HOME, "registered")
            self._attributes.setdefault(run.class_node, {})[text] = value
            run.env[f"self.{text}"] = value
        return UNKNOWN

    def _apply(self, run: Run, node: cst.Call, callee: Value, operands: list[Operand]) -> Value:
        """The result of calling a module or a loss."""
        tensors = [operand for operand in operands if operand.value.kind == "tensor"]
        if callee.kind == "loss":
            run._meet("loss", node, Operand(node.func, callee), *tensors)
            return run._combine("loss", node, *tensors)
        for operand in operands:
            items = operand.value.items if operand.value.kind == "container" else None
            tensors += [Operand(operand.node, v) for v in (items or {}).values() if v.kind == "tensor"]
        placed = [operand for operand in tensors if operand.value.place is not None]
        if callee.place is not None and placed and not self.framework:
            module = Operand(node.func, replace(callee, kind="module"))
            for operand in placed:
                run._meet("module", node, module, operand)
        if len(placed) > 1:
            run._meet("module", node, Operand(node.func, Value()), *placed)
        if callee.place is not None and callee.place.kind in ("accelerator", "home"):
            return Value("tensor", callee.place, "result")
        for operand in placed:
            if operand.value.place is not None and operand.value.place.kind in ("accelerator", "home", "input"):
                return Value("tensor", operand.value.place, "result")
        return UNKNOWN
