"""TDL701 unguarded-hardcoded-cuda: a literal accelerator where the code has a tensor to ask."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, FACTORIES, string_value
from devlint.semantics.flow.evidence import root_of
from devlint.semantics.flow.values import Value
from devlint.semantics.guards import choices
from devlint.semantics.tree import dotted

_MOVES = frozenset(("to", "cuda"))
_HOST_FUNCTION = re.compile(r"main|train|test|eval|setup|build|load|demo|bench|profile|__init__|cuda|gpu", re.I)

_NO_TENSOR = re.compile(r"ctx|args|opt\w*|cfg|config|optimizer\w*|model\w*|dummy\w*|local_\w+")
# Code written for one kind of device, and tests that are run on it.
_KERNELS = re.compile(r"kernels?|csrc|contrib|ops|extensions?|\w*triton\w*|\w*cuda\w*|tests?")
_TEST = re.compile(r"test_|.*_test\.py$|.*cuda")


class HardcodedCuda(Check):
    rules = (
        Rule(
            "TDL701",
            "unguarded-hardcoded-cuda",
            "a tensor put on a literal accelerator in a function whose inputs may be elsewhere",
            fix="unsafe",
        ),
    )
    triggers = (("cuda", "xpu"), ("def",))
    patterns = (r"""\.cuda\(\)|["'](?:cuda|xpu)(?::\d+)?["']""",)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._sharded(node)
        folder, name = self.file.place
        if _KERNELS.fullmatch(folder) or _TEST.match(name) or "triton" in self.file.names.aliases:
            return
        owner = self.enclosing(node, cst.ClassDef)
        world = self.file.placement.world
        in_module = owner is not None and world.is_module(self.unit, owner)
        if node.name.value == "forward" and not in_module:
            return
        if _HOST_FUNCTION.search(node.name.value):
            return
        facts = world.parameter_facts(self.unit, node, in_module)
        inputs = {name: value for name, value in facts.items() if not _NO_TENSOR.fullmatch(name)}
        code = self.unit.code(node)
        inputs = {name: value for name, value in inputs.items() if f"isinstance({name}," not in code}
        if not inputs or any(self._moved(node, name) for name in inputs):
            return
        for inner in self.unit.below(node):
            if isinstance(inner, cst.Call) and self.unit.enclosing(inner, cst.FunctionDef) is node:
                if not self._guarded(inner) and self._call(inner, inputs):
                    return

    def _sharded(self, function: cst.FunctionDef) -> None:
        """Inputs sent to a literal device for a model that `device_map` spread over what there is."""
        if "device_map" not in self.unit.words:
            return
        code = self.unit.module.code_for_node(function)
        match = re.search(r"(\w+)\s*=\s*[\w.]+\.from_pretrained\([^\n]*device_map\s*=", code)
        if match is None:
            return
        for inner in self.unit.below(function):
            if (
                isinstance(inner, cst.Call)
                and isinstance(inner.func, cst.Attribute)
                and inner.func.attr.value in _MOVES
            ):
                target = inner.args[0].value if inner.args else None
                if self._literal(target) if target is not None else inner.func.attr.value == "cuda":
                    start, end = self.unit.offsets(inner.func.attr)[0], self.unit.offsets(inner)[1]
                    place = f"{match[1]}.device"
                    fix = Fix(f"Use `{place}`", (Edit(start, end, f"to({place})"),), "unsafe")
                    self.report(
                        inner,
                        "TDL701",
                        f"`device_map` put `{match[1]}` where there was room, and its input is sent to a literal accelerator: use "
                        f"`{place}`",
                        fix=fix,
                    )
                    return

    def _guarded(self, node: cst.Call) -> bool:
        """Whether a test about devices chose this call; that CUDA is available says nothing about the input."""
        tests = (self.unit.module.code_for_node(choice.test).strip() for choice in choices(self.unit, node))
        return any(
            re.search(r"cuda|gpu|device", test, re.I) and not re.fullmatch(r"(?:\w+\.)?cuda\.is_available\(\)", test)
            for test in tests
        )

    def _moved(self, function: cst.FunctionDef, name: str) -> bool:
        """Whether the function puts its own input on a literal device: then all of it is meant to be there."""
        return any(
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and node.func.attr.value in _MOVES
            and root_of(node.func.value) == name
            for node in self.unit.below(function)
        )

    def _call(self, call: cst.Call, inputs: dict[str, Value]) -> bool:
        source = next(iter(sorted(inputs)))
        if self.name(call.func) in FACTORIES:
            device = argument(call, "device")
            if device is not None and (self._literal(device.value) or self._named_literal(device.value)):
                fix = Fix(f"Use `{source}.device`", (replace(self.unit, device.value, f"{source}.device"),), "unsafe")
                return self._report(call, self.unit.module.code_for_node(device.value), source, fix)
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVES:
            receiver = dotted(call.func.value)
            if call.func.attr.value == "cuda":
                literal = not call.args
            else:
                literal = len(call.args) == 1 and self._literal(call.args[0].value)
            if not literal or receiver.partition(".")[0] in inputs or self._is_module(call.func.value):
                return False
            if receiver and not receiver.startswith("self.") and "." in receiver:
                return False
            start, end = self.unit.offsets(call.func.attr)[0], self.unit.offsets(call)[1]
            fix = Fix(f"Use `{source}.device`", (Edit(start, end, f"to({source}.device)"),), "unsafe")
            return self._report(call, '"cuda"', source, fix)
        return False

    def _literal(self, node: cst.BaseExpression) -> bool:
        return (string_value(node) or "").partition(":")[0] in ACCELERATORS

    def _named_literal(self, node: cst.BaseExpression) -> bool:
        """Whether a name of this function stands for `torch.device("cuda")`, and for nothing else."""
        function = self.enclosing(node, cst.FunctionDef)
        if function is None or not isinstance(node, cst.Name):
            return False
        values = [
            other.value
            for other in self.unit.below(function, cst.Assign)
            if any(dotted(target.target) == node.value for target in other.targets)
        ]
        value = values[0] if len(values) == 1 else None
        if isinstance(value, cst.Call) and self.name(value.func) == "torch.device" and len(value.args) == 1:
            value = value.args[0].value
        return value is not None and self._literal(value)

    def _is_module(self, node: cst.BaseExpression) -> bool:
        """Whether the receiver is a module, or may be one: a name that nothing makes a tensor of."""
        if isinstance(node, cst.Call):
            return not self.name(node.func).startswith("torch.") or self.name(node.func).startswith("torch.nn.")
        return re.search(r"model|net|module|criterion|loss_fn|encoder|decoder|layer", dotted(node), re.I) is not None

    def _report(self, call: cst.Call, literal: str, source: str, fix: Fix) -> bool:
        self.report(
            call,
            "TDL701",
            f"{literal} is spelled out here, while `{source}` is wherever the caller put it: this fails on a machine without CUDA, "
            f"and meets another device when `{source}` is elsewhere; use `{source}.device`",
            fix=fix,
        )
        return True
