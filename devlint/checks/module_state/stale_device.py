"""TDL605 stale-device-attribute and TDL606 buffer-moved-in-forward: what a module's `.to()` knows nothing of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, move_of
from devlint.semantics.flow.api import CPU_CONSTRUCTORS, LIKE
from devlint.semantics.tree import dotted

_TENSOR = "size|shape|dim|ndim|dtype|view|reshape|unsqueeze|permute|transpose|float|sum|mean|expand|flatten|new_\\w+"


class StaleDevice(Check):
    rules = (
        Rule(
            "TDL605",
            "stale-device-attribute",
            "a module keeps the device it was built with, and creates or moves tensors there in `forward`",
            fix="unsafe",
            default=False,
        ),
        Rule(
            "TDL606",
            "buffer-moved-in-forward",
            "a plain tensor attribute is moved in every `forward`, instead of being a buffer",
            default=False,
        ),
    )
    triggers = (("class",), ("forward",), ("__init__",), ("to", "device", "cuda"))
    patterns = (r"self\.\w+\s*(?::[^=\n]+)?=",)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if not self.file.placement.world.is_module(self.unit, node):
            return
        methods = {item.name.value: item for item in node.body.body if isinstance(item, cst.FunctionDef)}
        init, forward = methods.get("__init__"), methods.get("forward")
        if init is None or forward is None:
            return
        devices = dict(self._kept_devices(init))
        # With two devices the model is spread on purpose; a framework may have set the one.
        settled = {"to", "_apply", "cuda"} & methods.keys() or self.file.placement.world.framework
        if len(devices) == 1 and not settled:
            self._used(forward, devices)
        tensors = dict(self._plain_tensors(init))
        for inner in self.unit.below(forward):
            if isinstance(inner, cst.Assign) and isinstance(inner.value, cst.Call):
                self._moved(inner, inner.value, tensors)

    def _kept_devices(self, init: cst.FunctionDef) -> Iterator[tuple[str, cst.Assign]]:
        """The attributes that keep a parameter of `__init__` named as a device is."""
        names = {param.name.value for param in (*init.params.params, *init.params.kwonly_params)}
        for node in self.unit.below(init):
            if isinstance(node, cst.Assign):
                target, value = dotted(node.targets[0].target), dotted(node.value)
                if (
                    isinstance(node.value, cst.Call)
                    and self.name(node.value.func) == "torch.device"
                    and node.value.args
                ):
                    value = dotted(node.value.args[0].value)
                if target.startswith("self.") and value in names and re.search("device|dev$", value, re.I):
                    yield target, node

    def _used(self, forward: cst.FunctionDef, devices: dict[str, cst.Assign]) -> None:
        source = self._tensor_input(forward)
        for node in self.unit.below(forward):
            if not isinstance(node, cst.Call):
                continue
            move = move_of(node)
            device = argument(node, "device") if self.name(node.func) in FACTORIES | LIKE else None
            place = device.value if device is not None else move.device_node if move is not None else None
            if place is None or dotted(place) not in devices:
                continue
            name = dotted(place)
            fix = Fix(f"Use `{source}.device`", (replace(self.unit, place, f"{source}.device"),), "unsafe")
            self.report(
                node,
                "TDL605",
                f"`{name}` is the device that the module was built with, and stays so when the module is moved; ask "
                f"{f'`{source}.device`' if source else 'a tensor that comes in for its device'}",
                fix=fix if source else None,
                evidence=[(devices[name], f"`{name}` is kept here")],
            )

    def _tensor_input(self, forward: cst.FunctionDef) -> str:
        """The first parameter that is surely a tensor, by more than its being the first."""
        facts = self.file.placement.world.parameter_facts(self.unit, forward, True)
        code = self.unit.module.code_for_node(forward)
        for param in forward.params.params:
            name = param.name.value
            if name in facts and (param.annotation or re.search(rf"\b{name}(?:\.(?:{_TENSOR})\b|\s*[-+*/@]\s)", code)):
                return name
        return ""

    def _plain_tensors(self, init: cst.FunctionDef) -> Iterator[tuple[str, cst.Assign]]:
        for node in self.unit.below(init):
            if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
                target = dotted(node.targets[0].target)
                if target.startswith("self.") and self.name(node.value.func) in FACTORIES | CPU_CONSTRUCTORS:
                    yield target, node

    def _moved(self, node: cst.Assign, call: cst.Call, tensors: dict[str, cst.Assign]) -> None:
        target, move = dotted(node.targets[0].target), move_of(call)
        if move is None or target not in tensors or dotted(move.receiver) != target:
            return
        name = target.partition(".")[2]
        self.report(
            node,
            "TDL606",
            f"`{target}` is moved by hand in every forward pass, is missing in the `state_dict`, and differs between replicas; make it "
            f'a buffer: `self.register_buffer("{name}", …, persistent=False)` follows the module by itself',
            evidence=[(tensors[target], "it is created here, as a plain attribute")],
        )
