"""TDL608 replica-parameters: the replicas that `nn.DataParallel` makes have no parameters to ask."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

_FIRST_OF = re.compile(
    r"next\((?:iter\()?(self(?:\.\w+)*)\.parameters\(\)\)?\)(?:\.(\w+))?|list\((self(?:\.\w+)*)\.parameters\(\)\)\[0\](?:\.(\w+))?"
)


class ReplicaParameters(Check):
    rules = (
        Rule(
            "TDL608",
            "replica-parameters",
            "`next(self.parameters())` in the forward pass of a module that `nn.DataParallel` replicates",
            fix="unsafe",
        ),
    )
    triggers = (("class",), ("parameters",), ("forward",))
    patterns = (r"\.parameters\(\)\s*\)",)

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only files that replicate a module with DataParallel have anything to report."""
        return super().wants(unit, names) and "DataParallel" in unit.source.text  # type: ignore[arg-type]

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if not self.file.placement.world.is_module(self.unit, node) or not self._is_replicated(node):
            return
        methods = {item.name.value: item for item in node.body.body if isinstance(item, cst.FunctionDef)}
        asking = {name: found for name, item in methods.items() if (found := next(self._asks(item), None))}
        forward = methods.get("forward")
        if forward is None:
            return
        for inner in self._asks(forward):
            self._report(inner, inner, forward)
        for inner in self.unit.below(forward):
            if isinstance(inner, cst.Attribute) and dotted(inner.value) == "self" and inner.attr.value in asking:
                above = self.parent(inner)
                called = isinstance(above, cst.Call) and above.func is inner
                is_property = any(
                    dotted(item.decorator).rpartition(".")[2] in ("property", "cached_property")
                    for item in methods[inner.attr.value].decorators
                )
                if called or is_property:
                    self._report(above if called and above else inner, asking[inner.attr.value], forward)

    def _asks(self, function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
        """Where the module's first parameter is taken, with no fallback for there being none."""
        for node in self.unit.below(function):
            if isinstance(node, (cst.Call, cst.Subscript, cst.Attribute)) and _FIRST_OF.fullmatch(self.code(node)):
                above = self.parent(node)
                longer = isinstance(above, cst.Attribute) and _FIRST_OF.fullmatch(self.code(above))
                if not longer and self.enclosing(node, cst.Try) is None:
                    yield node

    def _is_replicated(self, owner: cst.ClassDef) -> bool:
        """Whether the file hands an instance of the class, or something of which nothing is known, to `DataParallel`."""
        origins = Origins(self.file)
        for unit in self.file.units:
            if "DataParallel" not in unit.words:
                continue
            _ = unit.module
            for node in unit.nodes:
                if not isinstance(node, cst.Call) or not node.args:
                    continue
                if not self.file.names.qualified(node.func, unit).endswith("nn.DataParallel"):
                    continue
                model = node.args[0].value
                while isinstance(model, cst.Call) and isinstance(model.func, cst.Attribute):
                    model = model.func.value
                for origin in origins.of(model, unit):
                    built = origin.node if origin is not None else None
                    while isinstance(built, cst.Call) and isinstance(built.func, cst.Attribute):
                        built = built.func.value
                    if built is None or (isinstance(built, cst.Call) and dotted(built.func) == owner.name.value):
                        return True
        return False

    def _report(self, node: cst.CSTNode, asked: cst.CSTNode, forward: cst.FunctionDef) -> None:
        match = _FIRST_OF.fullmatch(self.code(asked))
        attribute = (match[2] or match[4] or "") if match else ""
        facts = self.file.placement.world.parameter_facts(self.unit, forward, True)
        source = next((param.name.value for param in forward.params.params if param.name.value in facts), "")
        fix = None
        if attribute == "device" and source:
            fix = Fix(f"Use `{source}.device`", (replace(self.unit, node, f"{source}.device"),), "unsafe")
        advice = f"ask an input: `{source}.{attribute}`" if source and attribute else "ask an input"
        self.report(
            node,
            "TDL608",
            f"`{self.code(node)}` takes the module's first parameter, and the replicas that `nn.DataParallel` makes have none: this "
            f"raises StopIteration on two GPUs or more; {advice}",
            fix=fix,
            evidence=[(asked, "the first parameter is taken here")] if asked is not node else [],
        )
