"""TDL604 load-without-map-location and TDL607 whole-module-load: what `torch.load` is trusted with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import move_of
from devlint.semantics.tree import dotted

# Each loader, and the position at which it takes map_location.
_LOADERS = {
    "torch.load": 1,
    "torch.jit.load": 1,
    "torch.hub.load_state_dict_from_url": 2,
    "torch.utils.model_zoo.load_url": 2,
}
_ALWAYS_STATE = frozenset(_LOADERS) - {"torch.load"}
_MODULE_METHODS = frozenset("eval train parameters named_parameters modules named_modules state_dict zero_grad".split())
_PROCESS_GROUP = frozenset(("init_process_group", "LOCAL_RANK", "local_rank"))
_GUARD_WORDS = ("cuda", "gpu", "device")


class TorchLoad(Check):
    rules = (
        Rule(
            "TDL604",
            "load-without-map-location",
            "a checkpoint loaded without `map_location`, so that its tensors go where they were saved",
            fix="unsafe",
        ),
        Rule(
            "TDL607",
            "whole-module-load",
            "a pickled module loaded under `weights_only=True`, the default since torch 2.6",
            fix="unsafe",
        ),
    )
    triggers = (("load", "load_state_dict_from_url", "load_url"),)

    def visit_Call(self, node: cst.Call) -> None:
        loader = self.name(node.func)
        if loader not in _LOADERS or has_unpacking(node):
            return
        used = list(self._uses(node))
        if argument(node, "map_location", _LOADERS[loader]) is None:
            checkpoint = loader in _ALWAYS_STATE or any(self._as_checkpoint(use) for use in used)
            checkpoint = checkpoint or any(self._moved(use) or self._handed_back(use) for use in used)
            if checkpoint and not self._guarded(node) and not self._saved_here(node):
                self._report_location(node, loader)
        if loader == "torch.load" and argument(node, "weights_only") is None and self._weights_only_by_default():
            proof = next((use for use in used if self._as_module(use)), None)
            if proof is not None and not self._saved_here(node):
                self._report_module(node, proof)

    def _weights_only_by_default(self) -> bool:
        allowed = not self.file.words.isdisjoint(("safe_globals", "add_safe_globals"))
        return self.file.settings.targets(2, 6) and not allowed

    def _report_location(self, node: cst.Call, loader: str) -> None:
        edit = add_argument(self.unit, node, 'map_location="cpu"')
        message = (
            f"`{self.code(node.func)}` without `map_location` puts each tensor on the device it was saved from: it "
            'fails where that device is missing and fills GPU 0 from every rank; load to `map_location="cpu"`, and '
            "`load_state_dict` copies to the model's device"
        )
        fix = Fix('Add `map_location="cpu"`', (edit,), "unsafe") if edit else None
        self.report(node, "TDL604", message, fix=fix)

    def _report_module(self, node: cst.Call, proof: cst.CSTNode) -> None:
        edit = add_argument(self.unit, node, "weights_only=False")
        message = (
            "a whole module is unpickled here, which `torch.load` refuses since torch 2.6 (`weights_only=True`); save "
            "and load a `state_dict`, or pass `weights_only=False` for a file that you trust"
        )
        fix = Fix("Add `weights_only=False`", (edit,), "unsafe") if edit else None
        self.report(node, "TDL607", message, fix=fix, evidence=[(proof, "the result is used as a module here")])

    def _uses(self, node: cst.Call) -> Iterator[cst.CSTNode]:
        """The call itself, and each place where the name that it is assigned to is read in the same function."""
        yield node
        target = self.parent(node)
        if not isinstance(target, cst.Assign) or len(target.targets) != 1:
            return
        name = dotted(target.targets[0].target)
        if not name:
            return
        kinds = (cst.ClassDef,) if name.startswith("self.") else (cst.FunctionDef,)
        scope = self.enclosing(node, *kinds) or self.unit.module
        for other in self.unit.below(scope, cst.Name, cst.Attribute):
            if other is not target.targets[0].target:
                above = self.parent(other)
                if dotted(other) == name and not (isinstance(above, cst.Attribute) and above.attr is other):
                    yield other

    def _as_checkpoint(self, use: cst.CSTNode) -> bool:
        """Whether the value, or an entry of it, is handed to `load_state_dict` or used as a module."""
        if self._as_module(use):
            return True
        at: cst.CSTNode = use
        above = self.parent(at)
        while isinstance(above, (cst.Subscript, cst.Attribute, cst.Arg, cst.Call)):
            if isinstance(above, cst.Subscript) and above.value is not at:
                return False
            if isinstance(above, cst.Call) and isinstance(at, cst.Arg):
                return isinstance(above.func, cst.Attribute) and above.func.attr.value == "load_state_dict"
            at, above = above, self.parent(above)
        return False

    def _moved(self, use: cst.CSTNode) -> bool:
        """Whether the value is moved to a device, as tensors and modules are."""
        above = self.parent(use)
        call = self.parent(above) if isinstance(above, cst.Attribute) and above.value is use else None
        return isinstance(call, cst.Call) and call.func is above and move_of(call) is not None

    def _handed_back(self, use: cst.CSTNode) -> bool:
        """Whether a function of the file returns the value, and a caller hands it, or an entry, to `load_state_dict`."""
        function = self.enclosing(use, cst.FunctionDef)
        if function is None or not isinstance(self.parent(use), cst.Return):
            return False
        name = function.name.value
        for unit in self.file.units:
            if name not in unit.words or "load_state_dict" not in unit.words or unit is self.unit:
                continue
            for node in unit.below(unit.module):
                if (
                    isinstance(node, cst.Assign)
                    and isinstance(node.value, cst.Call)
                    and dotted(node.value.func) == name
                ):
                    held = {dotted(node.targets[0].target)}
                    for other in unit.below(unit.enclosing(node, cst.FunctionDef) or unit.module):
                        if isinstance(other, cst.Assign) and isinstance(other.value, cst.Subscript):
                            if dotted(other.value.value) in held:
                                held.add(dotted(other.targets[0].target))
                        elif isinstance(other, cst.Call) and dotted(other.func).endswith("load_state_dict"):
                            if any(dotted(inner) in held for arg in other.args for inner in unit.below(arg)):
                                return True
        return False

    def _as_module(self, use: cst.CSTNode) -> bool:
        above = self.parent(use)
        if not isinstance(above, cst.Attribute) or above.value is not use or above.attr.value not in _MODULE_METHODS:
            return False
        call = self.parent(above)
        return isinstance(call, cst.Call) and call.func is above

    def _guarded(self, node: cst.Call) -> bool:
        """Whether a condition about the device chose this call: the other branch then maps the location."""
        above: cst.If | cst.IfExp | None = self._choice(node)
        while above is not None:
            test = self.code(above.test).lower()
            if any(word in test for word in _GUARD_WORDS):
                return True
            above = self._choice(above)
        return False

    def _choice(self, node: cst.CSTNode) -> cst.If | cst.IfExp | None:
        above = self.parent(node)
        while above is not None and not isinstance(above, (cst.If, cst.IfExp)):
            above = self.parent(above)
        return above

    def _saved_here(self, node: cst.Call) -> bool:
        """Whether this very process wrote the file: the devices are then its own, unless a process group shares it.

        So it did where the same function, for `self.path` the same class, or for a literal path the same file saves to
        the path, and where the load follows the training in one function.
        """
        scope: cst.CSTNode = self.enclosing(node, cst.FunctionDef) or self.unit.module
        if not node.args:
            return False
        path = node.args[0].value
        loaded = self.code(path)
        if self.file.words.isdisjoint(_PROCESS_GROUP):
            if isinstance(path, cst.SimpleString) and re.search(
                rf"\bsave\(.*{re.escape(loaded)}", self.file.source.text
            ):
                return True
            if dotted(path).startswith("self."):
                scope = self.enclosing(node, cst.ClassDef) or scope
        for other in self.unit.below(scope, cst.Call):
            method = dotted(other.func).rpartition(".")[2]
            if method == "save" and any(self.code(arg.value) == loaded for arg in other.args):
                return True
        return self._trained_before(node)

    def _trained_before(self, node: cst.Call) -> bool:
        scope = self.enclosing(node, cst.FunctionDef) or self.unit.module
        for other in self.unit.below(scope):
            if other is node:
                return False
            if isinstance(other, cst.Attribute) and other.attr.value == "backward":
                return True
        return False
