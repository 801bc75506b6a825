"""TDL115 generator-device-mismatch: random numbers asked of a generator on another device."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.edits import add_argument, argument
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, FACTORIES, string_value
from devlint.semantics.data_loader import DATA_LOADER
from devlint.semantics.default_device import default_device
from devlint.semantics.origins import Origin, Origins

_ON_CPU = frozenset((DATA_LOADER, "torch.utils.data.random_split", "torch.utils.data.RandomSampler"))


class GeneratorDevice(Check):
    rules = (
        Rule(
            "TDL115",
            "generator-device-mismatch",
            "a random generator on another device than what it fills",
            fix="unsafe",
        ),
    )
    triggers = (("generator",),)
    patterns = (r"generator\s*=",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func)
        given = argument(node, "generator")
        if given is None or (name not in FACTORIES and name not in _ON_CPU):
            return
        made = self._generator(given.value)
        if made is None:
            return
        call, origin = made
        place = argument(call, "device", 0)
        if name in _ON_CPU:
            if default_device(self.file) is not None:
                return
            if place is not None and self._is_accelerator(place.value):
                self._report(
                    node, "samplers draw on the CPU, and this generator is on an accelerator", None, call, origin
                )
            return
        device = argument(node, "device")
        if place is None and device is not None and self._is_accelerator(device.value):
            text = self.code(device.value)
            edit = add_argument(origin.unit, call, f"device={text}") if origin.unit is self.unit else None
            fix = Fix(f"Create the generator with `device={text}`", (edit,), "unsafe") if edit else None
            self._report(node, f"the tensor is made on `{text}`, and the generator is on the CPU", fix, call, origin)
        elif place is not None and device is None and self._is_accelerator(place.value) and not self._default(node):
            self._report(
                node, "the tensor is made on the CPU, and the generator is on an accelerator", None, call, origin
            )

    def _default(self, node: cst.Call) -> bool:
        """Whether something may choose the device of a factory that names none."""
        return self.file.placement.world.default_device(node, self.unit) or argument(node, "out") is not None

    def _report(self, node: cst.Call, what: str, fix: Fix | None, call: cst.Call, origin: Origin) -> None:
        evidence = [(call, "the generator is made here")] if origin.unit is self.unit else []
        self.report(
            node,
            "TDL115",
            f"{what}: `Expected a '…' device type for generator`; make the generator where it is used",
            fix=fix,
            evidence=evidence,
        )

    def _generator(self, node: cst.BaseExpression) -> tuple[cst.Call, Origin] | None:
        """The `torch.Generator(…)` call that surely made the generator."""
        origins = self._origins.of(node, self.unit)
        if len(origins) != 1 or origins[0] is None:
            return None
        made = origins[0].node
        if (
            isinstance(made, cst.Call)
            and isinstance(made.func, cst.Attribute)
            and made.func.attr.value == "manual_seed"
        ):
            made = made.func.value
        if isinstance(made, cst.Call) and self.file.names.qualified(made.func, origins[0].unit) == "torch.Generator":
            return made, origins[0]
        return None

    def _is_accelerator(self, node: cst.BaseExpression) -> bool:
        """Whether a device is spelled as an accelerator here, or by the default of the parameter that holds it."""
        text = string_value(node)
        if text is not None:
            return text.partition(":")[0] in ACCELERATORS
        if isinstance(node, cst.Call) and self.name(node.func) == "torch.device" and node.args:
            return self._is_accelerator(node.args[0].value)
        if isinstance(node, cst.IfExp):
            return self._is_accelerator(node.body) or self._is_accelerator(node.orelse)
        if not isinstance(node, cst.Name):
            return False
        if any(
            o is not None and not isinstance(o.node, cst.Name) and self._is_accelerator(o.node)
            for o in self._origins.of(node, self.unit)
        ):
            return True
        function = self.enclosing(node, cst.FunctionDef)
        if function is None:
            return False
        params = (*function.params.params, *function.params.kwonly_params)
        default = next((p.default for p in params if p.name.value == node.value and p.default is not None), None)
        return default is not None and (string_value(default) or "").partition(":")[0] in ACCELERATORS
