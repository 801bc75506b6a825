"""All that the interpreter knows of one file: its functions, classes, module level, and what was noted."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.interpreter import Run, result_of
from devlint.semantics.flow.meets import Notes, Operand
from devlint.semantics.flow.values import CPU, HOME, UNKNOWN, Place, Step, Value
from devlint.semantics.tree import dotted
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.expressions import Expressions

_BUDGET = 60_000
_MODULE_BASES = re.compile(r"(?:^|\.)(?:\w*Module|\w*PreTrainedModel|\w*Model|Function)$")


class World:
    """The interpreter's view of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.names = file.names
        self.notes = Notes()
        self.wants_names = False
        roots = {target.partition(".")[0] for targets in file.names.aliases.values() for target in targets}
        self.framework = not roots.isdisjoint(api.FRAMEWORK_ROOTS)
        self.sets_default_device = not file.words.isdisjoint(("set_default_device", "set_default_tensor_type"))
        self._left = _BUDGET
        self._module_env: dict[str, Value] | None = None
        self._attributes: dict[cst.ClassDef, dict[str, Value]] = {}
        self._initialised: set[cst.ClassDef] = set()
        self._module_classes: dict[cst.ClassDef, bool] = {}
        self._facts: dict[cst.FunctionDef, dict[str, Value]] = {}
        self._active: list[cst.FunctionDef] = []
        self._results: dict[tuple[object, ...], Value] = {}
        self._done: set[Unit] = set()

    def spend(self) -> bool:
        """Take one step; False once a unit has used up what one may cost."""
        self._left -= 1
        return self._left > 0

    # -- running ---------------------------------------------------------------------------------------------------

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
                self._run_function(unit, node, None)
            elif isinstance(node, cst.ClassDef):
                self._run_class(unit, node)

    def _run_class(self, unit: Unit, node: cst.ClassDef) -> None:
        self._initialise(unit, node)
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value != "__init__":
                self._run_function(unit, statement, node)
            elif isinstance(statement, cst.ClassDef):
                self._run_class(unit, statement)

    def _run_function(self, unit: Unit, node: cst.FunctionDef, owner: cst.ClassDef | None) -> None:
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

    # -- parameters ------------------------------------------------------------------------------------------------

    def parameter_facts(self, unit: Unit, function: cst.FunctionDef, in_module: bool) -> dict[str, Value]:
        """The parameters that are surely tensors, each where the caller put it."""
        facts = self._facts.get(function)
        if facts is None:
            facts = self._facts[function] = self._prove_parameters(unit, function, in_module)
        return facts

    def _prove_parameters(self, unit: Unit, function: cst.FunctionDef, in_module: bool) -> dict[str, Value]:
        params = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
        names = {param.name.value for param in params} - {"self", "cls"}
        tensor: set[str] = set()
        host: set[str] = set()
        for param in params:
            if param.annotation is not None:
                text = unit.module.code_for_node(param.annotation.annotation)
                if re.search(r"\bTensor\b", text) and not re.search(r"List|Dict|Tuple|Sequence|list|dict|tuple", text):
                    tensor.add(param.name.value)
                elif not re.search(r"\bTensor\b|Any|object", text):
                    host.add(param.name.value)
        owner = unit.enclosing(function, cst.ClassDef)
        if api.HOST_FUNCTION.search(function.name.value) or (owner and api.HOST_FUNCTION.search(owner.name.value)):
            return {}
        folder, name = self.file.place
        if api.HOST_FUNCTION.search(name) or api.HOST_FOLDER.fullmatch(folder):
            return {}
        if owner is not None and function.name.value != "forward" and "collate_fn" in unit.words:
            # A method of the class, and perhaps this one, makes batches in the loader's workers.
            return {}
        for node in unit.below(function):
            if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value in names:
                name, attribute = node.value.value, node.attr.value
                if attribute in api.HOST_ONLY:
                    host.add(name)
                elif attribute in api.TENSOR_METHODS and isinstance(unit.parents.get(node), cst.Call):
                    tensor.add(name)
                elif attribute == "device" or (in_module and attribute in ("shape", "dtype")):
                    if not api.OPTIONS_NAME.search(name) and not api.MODULE_NAME.search(name):
                        tensor.add(name)
            elif isinstance(node, cst.Call):
                qualified = self.names.qualified(node.func, unit)
                for arg in node.args:
                    name = _root(arg.value)
                    if name not in names:
                        continue
                    if qualified.startswith(("numpy.", "cv2.", "PIL.")):
                        host.add(name)
                    elif qualified.startswith("torch.") and not _takes_anything(qualified):
                        tensor.add(name)
                    elif in_module and dotted(node.func).startswith("self.") and isinstance(arg.value, cst.Name):
                        attribute = dotted(node.func)[5:]
                        if owner is not None and self.attribute(unit, owner, attribute).kind == "module":
                            tensor.add(name)
        if in_module and function.name.value == "forward" and params:
            first = next((param for param in params if param.name.value != "self"), None)
            if first is not None and first.annotation is None and first.default is None:
                tensor.add(first.name.value)
        if tensor - host:
            tensor |= self._indexing_parameters(unit, function, names)
        host |= {name for name in tensor if api.NUMBER_NAME.search(name)}
        return {
            name: Value("tensor", Place("input", name), "parameter", inputs=frozenset((name,)), name=name)
            for name in tensor - host
        }

    def _indexing_parameters(self, unit: Unit, function: cst.FunctionDef, names: set[str]) -> set[str]:
        """Parameters that index what a factory just made, as in `torch.eye(n)[labels]`."""
        return {
            part.slice.value.value
            for node in unit.below(function)
            if isinstance(node, cst.Subscript)
            and isinstance(node.value, cst.Call)
            and self.names.qualified(node.value.func, unit) in api.FACTORIES
            for part in node.slice
            if isinstance(part.slice, cst.Index)
            and isinstance(part.slice.value, cst.Name)
            and part.slice.value.value in names
        }

    # -- loaders ---------------------------------------------------------------------------------------------------

    def loads_batches(self, unit: Unit, loop: cst.For) -> bool:
        """Whether a loop over something unknown surely draws batches: it moves what it draws to a device."""
        if self.framework:
            return False
        source = unit.module.code_for_node(loop.iter)
        if not re.search(r"load|batch|\bdl\b|_dl\b|it\b|iter|data|train|val|test|bar\b|tqdm|prog", source, re.I):
            return False
        if self._moves_what_it_draws(unit, loop):
            return True
        # A validation loop beside a training loop draws from a loader of the same kind.
        scope = unit.enclosing(loop, cst.FunctionDef) or unit.module
        return bool(re.search(r"load|\bdl\b|_dl\b", source, re.I)) and any(
            isinstance(other, cst.For)
            and other is not loop
            and re.search(r"load|\bdl\b|_dl\b", unit.module.code_for_node(other.iter), re.I)
            and self._moves_what_it_draws(unit, other)
            for other in unit.below(scope)
        )

    def _moves_what_it_draws(self, unit: Unit, loop: cst.For) -> bool:
        targets = {node.value for node in unit.below(loop.target) if isinstance(node, cst.Name)}
        source = unit.module.code_for_node(loop.iter)
        if re.search(r"parameters|param_groups|state|buffers|modules|\.items\(\)|keys|gpu|cuda|device", source):
            return False
        unpacked = {
            name.value
            for node in unit.below(loop.body)
            if isinstance(node, cst.Assign) and _root(node.value) in targets
            for target in node.targets
            for name in unit.below(target)
            if isinstance(name, cst.Name)
        }
        for node in unit.below(loop.body):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                if node.func.attr.value in ("to", "cuda") and _root(node.func.value) in targets | unpacked:
                    return True
        return False

    def loads_on_cpu(self, run: Expressions, node: cst.Call) -> bool:
        """Whether a DataLoader's batches are surely on the CPU: nothing that it is built on moves them."""
        for arg in node.args:
            value = run.value(arg.value)
            if value.kind == "host" and value.name == "on device":
                return False
            keyword = arg.keyword.value if arg.keyword else ""
            name = dotted(arg.value.func) if isinstance(arg.value, cst.Call) else dotted(arg.value)
            if keyword not in ("", "dataset", "collate_fn", "batch_sampler", "sampler") or not name:
                continue
            found = self.function(name) if keyword == "collate_fn" else self.class_named(name)
            if found is not None and re.search(r"\.to\(|\.cuda\(|device", found[0].text):
                return False
            if keyword == "collate_fn" and found is None and name != "None":
                return False
        return self.file.words.isdisjoint(("DeviceDataLoader", "prefetcher", "Prefetcher", "data_prefetcher"))

    # -- classes ---------------------------------------------------------------------------------------------------

    def is_module(self, unit: Unit, node: cst.ClassDef) -> bool:
        """Whether a class is an `nn.Module`, by its bases in this file and the names of those from elsewhere."""
        known = self._module_classes.get(node)
        if known is None:
            self._module_classes[node] = False
            known = self._module_classes[node] = any(self._module_base(unit, arg.value) for arg in node.bases)
        return known

    def _module_base(self, unit: Unit, base: cst.BaseExpression) -> bool:
        name = self.names.qualified(base, unit)
        if name:
            return name.startswith("torch.nn.") or bool(_MODULE_BASES.search(name))
        found = self.class_named(dotted(base))
        return found is not None and self.is_module(*found)

    def class_named(self, name: str) -> tuple[Unit, cst.ClassDef] | None:
        """The top-level class of that name."""
        for unit in self.file.units:
            if unit.name == name and isinstance(unit.statements[0], ast.ClassDef):
                try:
                    node = unit.module.body[-1]
                except UnitTooDeep:
                    return None
                if isinstance(node, cst.ClassDef):
                    return unit, node
        return None

    def function(self, name: str) -> tuple[Unit, cst.FunctionDef] | None:
        """The top-level function of that name."""
        for unit in self.file.units:
            if unit.name == name and not isinstance(unit.statements[0], ast.ClassDef):
                try:
                    node = unit.module.body[-1]
                except UnitTooDeep:
                    return None
                if isinstance(node, cst.FunctionDef):
                    return unit, node
        return None

    def _initialise(self, unit: Unit, node: cst.ClassDef) -> None:
        """Run `__init__`, and the bases' before it, so that the attributes are known."""
        if node in self._initialised:
            return
        self._initialised.add(node)
        attributes = self._attributes.setdefault(node, {})
        for arg in node.bases:
            base = self.class_named(dotted(arg.value))
            if base is not None and base[1] is not node:
                self._initialise(*base)
                attributes.update(self._attributes.get(base[1], {}))
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
                self._run_function(unit, statement, node)

    def note_attribute(self, run: Run, target: cst.CSTNode, name: str, value: Value) -> None:
        """An assignment to `self.<name>`: what it is in the class's other methods."""
        owner, function = run.class_node, run.function
        if owner is None or function is None:
            return
        attributes = self._attributes.setdefault(owner, {})
        if function.name.value != "__init__":
            settled = value.kind in ("device", "loader") or (value.kind == "module" and is_moved(value))
            if name not in attributes and settled:
                attributes[name] = value
            return
        if run.in_module:
            if value.kind in ("module", "loss"):
                # A module that holds nothing, such as a Dropout or a CTCLoss, is nowhere.
                holds = value.kind == "module" and (value.place == CPU or self.class_named(value.name) is not None)
                value = replace(value, place=HOME if holds else value.place)
            elif value.kind == "tensor" and value.source == "registered" and value.place in (CPU, None):
                value = replace(value, place=HOME)
            elif value.kind == "tensor" and value.place == CPU and value.source in ("factory", "numpy"):
                value = replace(value, source="attribute", steps=(*value.steps, Step(target, run.unit, name)))
            elif value.kind == "tensor":
                value = Value("tensor", None)
            elif value.kind == "container":
                value = UNKNOWN
        elif value.kind == "tensor":
            value = UNKNOWN
        elif value.kind in ("module", "loss") and not is_moved(value):
            # Who built it may move it later, or the class may be a module through a base that is not seen here.
            value = UNKNOWN
        attributes[name] = value if name not in attributes or attributes[name].kind == value.kind else UNKNOWN

    def attribute(self, unit: Unit, node: cst.ClassDef, name: str) -> Value:
        """What `self.<name>` is at the start of a method."""
        self._initialise(unit, node)
        value = self._attributes.get(node, {}).get(name, UNKNOWN)
        if value.source == "attribute" and self._reassigned(unit, node, name):
            return UNKNOWN
        if value.kind == "device" and value.place == CPU and self._reassigned(unit, node, name):
            return Value("device", None)
        return value

    def _reassigned(self, unit: Unit, node: cst.ClassDef, name: str) -> bool:
        """Whether another method than `__init__` and the running one may give the attribute another place."""
        running = self._active[-1] if self._active else None
        for inner in unit.below(node):
            if isinstance(inner, cst.AssignTarget) and dotted(inner.target) == f"self.{name}":
                function = unit.enclosing(inner, cst.FunctionDef)
                if function is not None and function.name.value != "__init__" and function is not running:
                    return True
            elif isinstance(inner, cst.FunctionDef) and inner.name.value in ("_apply", "to", "cuda", "__getattr__"):
                return True
        return False

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, run: Expressions, node: cst.Call, qualified: str) -> Value:
        """The result of a call of something that is not torch's own."""
        assert isinstance(run, Run)
        text = dotted(node.func)
        if text == "self.register_buffer" and run.class_node is not None and len(node.args) > 1:
            return self._register(run, node)
        callee = run.value(node.func) if not isinstance(node.func, cst.Name) else run.env.get(text, UNKNOWN)
        if callee.kind == "unknown" and isinstance(node.func, cst.Name):
            callee = self.module_value(node.func, run)
        operands = run.arguments(node)
        if callee.kind in ("module", "loss"):
            return self._apply(run, node, callee, operands)
        if text in ("copy.deepcopy", "deepcopy", "iter") and operands:
            return operands[0].value
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
        inner = self._inline(run, node, text, operands)
        if inner is not None:
            return inner
        built = self.class_named(text)
        if built is not None and self.is_module(*built):
            step = Step(node, run.unit, "")
            return Value("module", CPU, "factory", (step,), name=text)
        if api.LOSS_NAME.search(text) and "ctc" not in text.lower() and not qualified:
            return run._combine("loss", node, *(o for o in operands if o.value.kind == "tensor"))
        if api.MODULE_NAME.search(text) and text != "super" and not qualified:
            return self._apply(run, node, Value("module", None, name=text), operands)
        return UNKNOWN

    def _register(self, run: Run, node: cst.Call) -> Value:
        from devlint.semantics.calls import string_value

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

    def _inline(self, run: Run, node: cst.Call, text: str, operands: list[Operand]) -> Value | None:
        """Run a function of this file with these arguments; None where there is none of that name."""
        owner: cst.ClassDef | None = None
        found: tuple[Unit, cst.FunctionDef] | None = None
        if text.startswith("self.") and text.count(".") == 1 and run.class_node is not None:
            owner = run.class_node
            for statement in owner.body.body:
                if isinstance(statement, cst.FunctionDef) and statement.name.value == text[5:]:
                    found = (run.unit, statement)
        elif text and "." not in text:
            found = self.function(text)
        if found is None:
            return None
        unit, function = found
        if api.HOST_FUNCTION.search(function.name.value):
            return UNKNOWN
        if run.depth >= 3 or function in self._active or any(arg.star for arg in node.args):
            return UNKNOWN
        params = [*function.params.posonly_params, *function.params.params]
        names = [param.name.value for param in params]
        if owner is not None and names and names[0] in ("self", "cls"):
            names = names[1:]
        given = dict(zip(names, (o.value for o in operands if not o.keyword), strict=False))
        given |= {o.keyword: o.value for o in operands if o.keyword}
        memo = self._memo_key(function, given)
        if memo in self._results:
            return self._results[memo]
        in_module = owner is not None and self.is_module(unit, owner)
        inner = Run(self, unit, class_node=owner, in_module=in_module, function=function, depth=run.depth + 1)
        inner.building = run.building
        inner.parameters(function, given, called=True)
        self._active.append(function)
        goes_on = inner.suite(function.body)
        self._active.pop()
        result = UNKNOWN if goes_on and inner.returned else result_of(inner.returned)
        if any(isinstance(n, cst.Yield) for n in unit.below(function)):
            result = UNKNOWN
        self._results[memo] = result
        return result

    def _memo_key(self, function: cst.FunctionDef, given: dict[str, Value]) -> tuple[object, ...]:
        parts = tuple(sorted((name, value.kind, repr(value.place), value.source) for name, value in given.items()))
        return (function, parts)


def is_moved(value: Value) -> bool:
    """Whether the value was moved to what may be an accelerator."""
    return value.place is not None and value.place.kind == "accelerator"


def _root(node: cst.CSTNode) -> str:
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def _takes_anything(qualified: str) -> bool:
    """Whether a torch function takes what is no tensor, so that being its argument proves nothing."""
    last = qualified.rpartition(".")[2]
    if qualified in api.FACTORIES or qualified in api.CPU_CONSTRUCTORS or last[:1].isupper():
        return True
    return not (qualified.count(".") == 1 or qualified.startswith(api.FUNCTIONAL)) or last in (
        "device is_tensor load save manual_seed no_grad compile Size dtype set_grad_enabled Generator typename".split()
    )
