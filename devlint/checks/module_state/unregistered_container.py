"""TDL602 unregistered-module-container: modules or parameters in a list that the module does not see into."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.flow.api import CONTAINERS, LOSS_CLASSES, PARAMETRIC
from devlint.semantics.tree import dotted

# A module of this file that holds no parameters loses nothing in a list.
_HOLDS = re.compile(
    r"\b(?:" + "|".join(sorted(name.rpartition(".")[2] for name in PARAMETRIC)) + r"|Parameter|register_buffer)\("
)


class UnregisteredContainer(Check):
    rules = (
        Rule(
            "TDL602",
            "unregistered-module-container",
            "modules or parameters kept in a plain list or dict of a module",
            fix="unsafe",
        ),
    )
    triggers = (("class",), ("__init__",), ("self",))
    patterns = (r"self\.\w+\s*(?::[^=\n]+)?=\s*(?:\[|\{|\(|list\(|tuple\(|dict\()",)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if not self.file.placement.world.is_module(self.unit, node):
            return
        code = self.unit.text
        if re.search(r"add_module\(|register_module\(|setattr\(self|__setattr__", code):
            return
        for inner in self.unit.below(node):
            if isinstance(inner, cst.Assign) and len(inner.targets) == 1:
                name = dotted(inner.targets[0].target)
                function = self.enclosing(inner, cst.FunctionDef)
                if name.startswith("self.") and name.count(".") == 1 and function is not None:
                    if function.name.value == "__init__" and self.enclosing(inner, cst.ClassDef) is node:
                        self._attribute(node, code, inner, name)

    def _attribute(self, owner: cst.ClassDef, code: str, statement: cst.Assign, name: str) -> None:
        if re.search(rf"(?:Sequential|ModuleList|ModuleDict|ParameterList)\([^\n]*\b{re.escape(name)}\b", code):
            return
        if len(re.findall(rf"{re.escape(name)}\s*=(?!=)", code)) != 1 or not self._read_elsewhere(owner, name):
            return
        value = statement.value
        if isinstance(value, (cst.List, cst.Tuple)) and value.elements:
            kinds = {self._kind(element.value) for element in value.elements}
            if len(value.elements) == 1 and re.search(rf"{re.escape(name)}\[0\]", code):
                return
            self._report(statement, name, kinds, self._wrapped(value, kinds))
        elif isinstance(value, cst.ListComp):
            kinds = {self._kind(value.elt)}
            self._report(statement, name, kinds, self._wrapped(value, kinds))
        elif isinstance(value, cst.Call) and dotted(value.func) in ("list", "tuple") and len(value.args) == 1:
            inner = value.args[0].value
            if isinstance(inner, (cst.GeneratorExp, cst.ListComp)):
                kinds = {self._kind(inner.elt)}
                # What was a tuple may be added to others, which a ModuleList is not.
                self._report(statement, name, kinds, None)
            else:
                self._filled(owner, statement, name)
        elif isinstance(value, cst.DictComp):
            # What its keys are is not known, and a ModuleDict takes strings.
            self._report(statement, name, {self._kind(value.value)}, None)
        elif isinstance(value, cst.Dict) and value.elements:
            kinds = {self._kind(element.value) for element in value.elements}
            keys = [element.key if isinstance(element, cst.DictElement) else None for element in value.elements]
            strings = all(string_value(key) is not None for key in keys)
            fix = self._wrapped(value, kinds, "ModuleDict") if strings and kinds == {"module"} else None
            self._report(statement, name, kinds, fix)
        else:
            self._filled(owner, statement, name)

    def _filled(self, owner: cst.ClassDef, statement: cst.Assign, name: str) -> None:
        """A list or dict that starts empty and is filled."""
        value = statement.value
        if isinstance(value, cst.Dict) or (
            isinstance(value, cst.Call) and dotted(value.func) in ("dict", "OrderedDict")
        ):
            kinds = {
                self._kind(put.value)
                for put in self.unit.below(owner)
                if isinstance(put, cst.Assign)
                and isinstance(put.targets[0].target, cst.Subscript)
                and dotted(put.targets[0].target.value) == name
            }
            self._report(statement, name, kinds, None)
            return
        empty = isinstance(value, cst.List) or (isinstance(value, cst.Call) and dotted(value.func) == "list")
        if not empty or (isinstance(value, cst.Call) and value.args):
            return
        kinds = {
            self._kind(call.args[0].value)
            for call in self.unit.below(owner)
            if isinstance(call, cst.Call) and dotted(call.func) == f"{name}.append" and len(call.args) == 1
        }
        self._report(statement, name, kinds, self._wrapped(None, kinds, node=value))

    def _kind(self, node: cst.BaseExpression, depth: int = 0) -> str:
        """`module`, `parameter`, `buffer` or nothing: what an element surely is."""
        if isinstance(node, cst.Call):
            name = self.name(node.func)
            if name in PARAMETRIC or name in CONTAINERS:
                return "module"
            if name in LOSS_CLASSES:
                # The weights of a loss are a buffer.
                weight = argument(node, "weight") or argument(node, "pos_weight")
                return "module" if weight is not None and dotted(weight.value) != "None" else ""
            if name == "torch.nn.Parameter":
                return "parameter"
            if dotted(node.func) == "getattr" and node.args and dotted(node.args[0].value) == "self":
                return "buffer" if "register_buffer" in self.unit.words else ""
            made = self.file.placement.world.function(dotted(node.func)) if depth < 3 else None
            if made is not None:
                returned = made[0].below(made[1], cst.Return)
                calls = [each.value for each in returned if isinstance(each.value, cst.Call)]
                names = {self.file.names.qualified(call.func, made[0]) for call in calls}
                return "module" if names and len(calls) == len(returned) and names <= PARAMETRIC | CONTAINERS else ""
            found = self.file.placement.world.class_named(dotted(node.func))
            holds = found is not None and _HOLDS.search(found[0].text) is not None
            return "module" if found is not None and holds and self.file.placement.world.is_module(*found) else ""
        if isinstance(node, cst.Name) and depth < 3:
            function = self.enclosing(node, cst.FunctionDef)
            values = [
                other.value
                for other in (self.unit.below(function) if function is not None else [])
                if isinstance(other, cst.Assign) and any(dotted(t.target) == node.value for t in other.targets)
            ]
            kinds = {self._kind(value, depth + 1) for value in values}
            return kinds.pop() if len(kinds) == 1 else ""
        return ""

    def _read_elsewhere(self, owner: cst.ClassDef, name: str) -> bool:
        for node in self.unit.below(owner):
            if isinstance(node, cst.Attribute) and dotted(node) == name:
                function = self.enclosing(node, cst.FunctionDef)
                if function is not None and function.name.value != "__init__":
                    return True
        return False

    def _wrapped(
        self, value: cst.BaseExpression | None, kinds: set[str], name: str = "", node: cst.BaseExpression | None = None
    ) -> Fix | None:
        if not name:
            name = {"module": "ModuleList", "parameter": "ParameterList"}.get(next(iter(kinds), ""), "")
        if len(kinds) != 1 or not name:
            return None
        spelled, needs = self.file.names.spell(f"torch.nn.{name}")
        target = value or node
        assert target is not None
        inner = self.code(target) if value is not None else ""
        return Fix(f"Use `{spelled}`", (replace(self.unit, target, f"{spelled}({inner})"),), "unsafe", needs)

    def _report(self, statement: cst.Assign, name: str, kinds: set[str], fix: Fix | None) -> None:
        if not kinds & {"module", "parameter", "buffer"}:
            return
        if kinds == {"parameter"} and re.search(rf"\breturn\b[^\n]*{re.escape(name)}\b", self.unit.text):
            # The class hands its parameters to the optimizer by a method of its own.
            return
        if kinds == {"buffer"}:
            message = (
                f"`{name}` holds the buffers as they are now: `.to()` puts new tensors into the module, and this list "
                "keeps the old ones; keep their names, and read them with `getattr`"
            )
        else:
            what = "parameters" if kinds == {"parameter"} else "modules"
            message = (
                f"the {what} in `{name}` are not registered: `.to()` leaves them behind, `parameters()` and `state_dict()` "
                f"miss them, and they are not trained; use `nn.{'ParameterList' if what == 'parameters' else 'ModuleList'}`"
            )
        self.report(statement, "TDL602", message, fix=fix)
