"""TDL413 bce-in-autocast: a loss that CUDA's autocast refuses."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.lazycst import cst
from devlint.semantics.autocast import Autocasts
from devlint.semantics.origins import Origins
from devlint.units import Unit

_FUNCTION = "torch.nn.functional.binary_cross_entropy"
_CLASS = "torch.nn.BCELoss"


class BceInAutocast(Check):
    rules = (Rule("TDL413", "bce-in-autocast", "`BCELoss` under CUDA autocast raises"),)
    triggers = (("autocast",),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._autocasts = Autocasts(file)
        self._origins = Origins(file)
        self._possible = not file.words.isdisjoint(("BCELoss", "binary_cross_entropy"))

    def visit_Call(self, node: cst.Call) -> None:
        if not self._possible:
            return
        around = self._autocasts.around(node, self.unit)
        if around is None or self._autocasts.is_off(around) or not self._is_bce(node):
            return
        if not self._autocasts.may_be_cuda(around, self._unit_of(around)):
            return
        code = self.code(node.func) or "BCELoss"
        self.report(
            node,
            "TDL413",
            f"`{code}` is refused by autocast on CUDA: this raises a RuntimeError; leave the sigmoid out and call "
            "`binary_cross_entropy_with_logits` or `BCEWithLogitsLoss`, or compute the loss under `autocast(enabled=False)`",
            evidence=[(around, "autocast begins here")] if self._unit_of(around) is self.unit else [],
        )

    def _unit_of(self, node: cst.CSTNode) -> Unit:
        return next((unit for unit in self.file.units if node in unit.parents), self.unit)

    def _is_bce(self, call: cst.Call) -> bool:
        name = self.name(call.func)
        if name == _FUNCTION:
            return True
        if name.startswith("torch."):
            return False
        return self._origins.makers(call.func, self.unit) == {_CLASS}
