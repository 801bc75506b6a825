"""What the use of a name proves: parameters that are tensors, loops that draw batches, loaders on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.calls import MOVES_OR_DEVICE, move_of
from devlint.semantics.flow import api
from devlint.semantics.flow.classes import Classes
from devlint.semantics.flow.values import CPU, Place, Value
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.expressions import Expressions


class Evidence(Classes):
    """Proofs from use, in one file."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        roots = {target.partition(".")[0] for targets in file.names.aliases.values() for target in targets}
        self.framework = not roots.isdisjoint(api.FRAMEWORK_ROOTS)
        """Whether a training framework may move batches and models by itself."""
        self.uses_numpy = "numpy" in roots or "np" in file.words
        """Whether what has a shape may be an array."""
        self._facts: dict[cst.FunctionDef, dict[str, Value]] = {}

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
        shaped = in_module or not self.uses_numpy
        remade = dict(reversed(list(self._remade(unit, function, names))))
        for node in unit.below(function, cst.Assign, cst.Attribute, cst.Call):
            if node in remade.values():
                # From here on the name is what a factory made of the parameter, and proves nothing of it.
                names = names - {name for name, at in remade.items() if at is node}
            if isinstance(node, cst.Attribute) and (name := _sliced_name(node.value)) in names:
                attribute = node.attr.value
                if attribute in api.HOST_ONLY:
                    host.add(name)
                elif self._only_tensors_have(node, unit):
                    tensor.add(name)
                elif attribute == "device" or (shaped and attribute in ("shape", "dtype")):
                    if not api.OPTIONS_NAME.search(name) and not api.MODULE_NAME.search(name):
                        tensor.add(name)
            elif isinstance(node, cst.Call):
                qualified = self.names.qualified(node.func, unit)
                for arg in node.args:
                    name = root_of(arg.value)
                    if name not in names or _is_a_fact(arg.value):
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
        facts = {
            name: Value("tensor", Place("input", name), "parameter", inputs=frozenset((name,)), name=name)
            for name in tensor - host
        }
        if not self.framework:
            for name in names - facts.keys():
                if api.BATCH_NAME.search(name) and self._moves_a_part(unit, function, name):
                    facts[name] = Value("batch", CPU, "element", name=name)
        return facts

    def _moves_a_part(self, unit: Unit, function: cst.FunctionDef, name: str) -> bool:
        """Whether the function takes a batch apart and moves some part of it: then it came as the loader left it."""
        parts: set[str] = set()
        for node in unit.below(function, cst.Assign, cst.Call):
            if isinstance(node, cst.Assign):
                target, value = node.targets[0].target, node.value
                if isinstance(target, cst.Tuple) and isinstance(value, cst.Name) and value.value == name:
                    parts |= {dotted(element.value) for element in target.elements}
                elif _indexed_name(value) == name and isinstance(value, cst.Subscript):
                    parts.add(dotted(target))
            elif isinstance(node.func, cst.Attribute):
                if node.func.attr.value == "cuda" or (move_of(node) and node.func.attr.value == "to"):
                    receiver = node.func.value
                    whole = isinstance(receiver, cst.Name) and receiver.value == name
                    if not whole and (dotted(receiver) in parts or _indexed_name(receiver) == name):
                        return True
        return False

    def _remade(self, unit: Unit, function: cst.FunctionDef, names: set[str]) -> Iterator[tuple[str, cst.CSTNode]]:
        """The parameters that are rebound to a tensor made of them, as in `x = torch.tensor(x)`, and where."""
        for node in unit.below(function, cst.Assign):
            if dotted(node.targets[0].target) in names:
                made = {self.names.qualified(call.func, unit) for call in unit.below(node, cst.Call)}
                if made & (api.FACTORIES | api.CPU_CONSTRUCTORS):
                    yield dotted(node.targets[0].target), node

    def _only_tensors_have(self, node: cst.Attribute, unit: Unit) -> bool:
        """Whether a method is called that arrays do not have, or by a keyword that theirs do not take."""
        call = unit.parents.get(node)
        if not isinstance(call, cst.Call) or call.func is not node:
            return False
        method = node.attr.value
        return method in api.TENSOR_METHODS or (
            method in api.KEEP_METHODS
            and any(arg.keyword and arg.keyword.value in ("dim", "keepdim") for arg in call.args)
        )

    def _indexing_parameters(self, unit: Unit, function: cst.FunctionDef, names: set[str]) -> set[str]:
        """Parameters that index what a factory just made, as in `torch.eye(n)[labels]`."""
        return {
            part.slice.value.value
            for node in unit.below(function, cst.Subscript)
            if isinstance(node.value, cst.Call) and self.names.qualified(node.value.func, unit) in api.FACTORIES
            for part in node.slice
            if isinstance(part.slice, cst.Index)
            and isinstance(part.slice.value, cst.Name)
            and part.slice.value.value in names
        }

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
            other is not loop
            and re.search(r"load|\bdl\b|_dl\b", unit.module.code_for_node(other.iter), re.I)
            and self._moves_what_it_draws(unit, other)
            for other in unit.below(scope, cst.For)
        )

    def _moves_what_it_draws(self, unit: Unit, loop: cst.For) -> bool:
        targets = {node.value for node in unit.below(loop.target, cst.Name)}
        source = unit.module.code_for_node(loop.iter)
        if re.search(r"parameters|param_groups|state|buffers|modules|\.items\(\)|keys|gpu|cuda|device", source):
            return False
        unpacked = {
            name.value
            for node in unit.below(loop.body, cst.Assign)
            if root_of(node.value) in targets
            for target in node.targets
            for name in unit.below(target, cst.Name)
        }
        for node in unit.below(loop.body, cst.Call):
            if isinstance(node.func, cst.Attribute):
                if node.func.attr.value in ("to", "cuda") and root_of(node.func.value) in targets | unpacked:
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
            if found is not None and MOVES_OR_DEVICE.search(found[0].text):
                return False
            if keyword == "collate_fn" and found is None and name != "None":
                return False
        return self.file.words.isdisjoint(("DeviceDataLoader", "prefetcher", "Prefetcher", "data_prefetcher"))


def _sliced_name(node: cst.CSTNode) -> str:
    """The name that `x`, `x[:, None]` or `x.mean(0)` starts with: indexed and called as only arrays are."""
    while isinstance(node, (cst.Subscript, cst.Call)):
        if isinstance(node, cst.Call):
            if not isinstance(node.func, cst.Attribute) or node.func.attr.value not in api.KEEP_METHODS:
                return ""
            node = node.func.value
            continue
        if len(node.slice) < 2 and not isinstance(node.slice[0].slice, cst.Slice):
            return ""
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _indexed_name(node: cst.CSTNode) -> str:
    """The name that `x`, or `x["key"]`, starts with."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def root_of(node: cst.CSTNode) -> str:
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def _is_a_fact(node: cst.CSTNode) -> bool:
    """Whether an expression is a number or a size that was asked of something: `x.size(0)`, `x.shape[1]`."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        if isinstance(node, cst.Attribute) and node.attr.value in (
            *api.HOST_METHODS,
            "shape",
            "ndim",
            "dtype",
            "device",
        ):
            return node.attr.value != "numpy"
        node = node.func if isinstance(node, cst.Call) else node.value
    return False


def _takes_anything(qualified: str) -> bool:
    """Whether a torch function takes what is no tensor, so that being its argument proves nothing."""
    last = qualified.rpartition(".")[2]
    if qualified in api.FACTORIES or qualified in api.CPU_CONSTRUCTORS or last[:1].isupper():
        return True
    return not (qualified.count(".") == 1 or qualified.startswith(api.FUNCTIONAL)) or last in (
        "device is_tensor load save manual_seed no_grad compile Size dtype set_grad_enabled Generator typename".split()
    )
