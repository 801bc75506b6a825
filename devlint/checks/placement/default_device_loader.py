"""TDL116 default-device-dataloader: shuffling on the CPU where new tensors are made on an accelerator."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.data_loader import DATA_LOADER, is_literal, is_set, option
from devlint.semantics.default_device import default_device
from devlint.units import Unit

_RANDOM_SAMPLERS = frozenset(
    f"torch.utils.data.{name}" for name in ("RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler")
)
_SPLIT = "torch.utils.data.random_split"


class DefaultDeviceLoader(Check):
    rules = (
        Rule(
            "TDL116",
            "default-device-dataloader",
            "a loader shuffles with a CPU generator while the default device is an accelerator",
            fix="unsafe",
        ),
    )
    triggers = (("DataLoader", "random_split"),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._default = default_device(file)

    def visit_Call(self, node: cst.Call) -> None:
        if self._default is None or has_unpacking(node):
            return
        name = self.name(node.func)
        if name == DATA_LOADER:
            if not self._draws(node) or is_set(option(node, "generator")):
                return
        elif name != _SPLIT or argument(node, "generator", 2) is not None:
            return
        place, call, unit = self._default
        what = "shuffles" if name == DATA_LOADER else "draws its permutation"
        self.report(
            node,
            "TDL116",
            f"`{self.code(node.func)}(…)` {what} with a generator on the CPU, while new tensors are made on the default device "
            "(`Expected a 'cuda' device type for generator but found 'cpu'`); give it a generator of that device",
            fix=self._fix(node, place, call, unit),
            evidence=[(call, "the default device is set here")] if unit is self.unit else [],
        )

    def _draws(self, node: cst.Call) -> bool:
        """Whether the loader draws random numbers for the order of its samples."""
        if is_literal(option(node, "shuffle"), "True"):
            return True
        sampler = option(node, "sampler")
        if sampler is None or not isinstance(sampler.value, cst.Call):
            return False
        return self.name(sampler.value.func) in _RANDOM_SAMPLERS and argument(sampler.value, "generator") is None

    def _fix(self, node: cst.Call, place: cst.BaseExpression, call: cst.Call, unit: Unit) -> Fix | None:
        """The same device for the generator, where what names it is known at the loader, too."""
        text = unit.code(place)
        if self.file.names.qualified(call.func, unit).endswith("tensor_type"):
            text = '"cuda"'
        elif string_value(place) is None:
            makers = (unit.enclosing(call, cst.FunctionDef), self.enclosing(node, cst.FunctionDef))
            if not isinstance(place, cst.Name) or (makers[0] is not None and makers[0] is not makers[1]):
                return None
        if unit.enclosing(call, cst.If) is not None and unit.enclosing(call, cst.If) is not self.enclosing(
            node, cst.If
        ):
            return None
        spelled, needs = self.file.names.spell("torch.Generator")
        edit = add_argument(self.unit, node, f"generator={spelled}(device={text})")
        return Fix(f"Give it a generator on {text}", (edit,), "unsafe", needs) if edit else None
