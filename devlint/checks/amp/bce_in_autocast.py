"""TDL413 bce-in-autocast: a loss on probabilities that CUDA's autocast refuses."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import keyword_is, string_value
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted

_AUTOCAST = frozenset(("torch.amp.autocast", "torch.cuda.amp.autocast"))
_FUNCTION = "torch.nn.functional.binary_cross_entropy"
_CLASS = "torch.nn.BCELoss"


class BceInAutocast(Check):
    rules = (
        Rule(
            "TDL413", "bce-in-autocast", "`binary_cross_entropy` or `BCELoss` under an autocast of CUDA, which raises"
        ),
    )
    triggers = (("autocast",),)
    patterns = (r"autocast\s*\(",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    @classmethod
    def wants(cls, unit: object, names: object) -> bool:
        """Only where the file has such a loss."""
        text = unit.source.text  # type: ignore[attr-defined]
        return ("BCELoss" in text or "binary_cross_entropy" in text) and super().wants(unit, names)  # type: ignore[arg-type]

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != _FUNCTION and not self._is_bce(node):
            return
        block = self._autocast_around(node)
        if block is None:
            return
        name = self.code(node.func)
        self.report(
            node,
            "TDL413",
            f"`{name}` takes probabilities, and CUDA's autocast refuses it (`unsafe to autocast`); give the logits to "
            "`binary_cross_entropy_with_logits` or `nn.BCEWithLogitsLoss`, or compute the loss outside of the block in float32",
            evidence=[(block, "autocast begins here")],
        )

    def _is_bce(self, node: cst.Call) -> bool:
        """Whether the callee is surely an `nn.BCELoss`."""
        if not isinstance(node.func, (cst.Name, cst.Attribute)) or self.name(node.func):
            return isinstance(node.func, cst.Call) and self.name(node.func.func) == _CLASS
        if dotted(node.func).startswith("self.") or isinstance(node.func, cst.Name):
            origins = self._origins.of(node.func, self.unit)
            return bool(origins) and all(
                origin is not None
                and isinstance(origin.node, cst.Call)
                and self.file.names.qualified(self._made(origin.node).func, origin.unit) == _CLASS
                for origin in origins
            )
        return False

    def _made(self, node: cst.Call) -> cst.Call:
        """The constructor's call at the head of `nn.BCELoss().to(device)`."""
        while isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Call):
            node = node.func.value
        return node

    def _autocast_around(self, node: cst.CSTNode) -> cst.Call | None:
        """The innermost autocast block around `node`, where it may be CUDA's and is not switched off."""
        above = self.enclosing(node, cst.With, cst.FunctionDef)
        while isinstance(above, cst.With):
            for item in above.items:
                call = item.item
                if isinstance(call, cst.Call) and self.name(call.func) in _AUTOCAST:
                    if self.name(call.func) == "torch.amp.autocast":
                        device = argument(call, "device_type", 0)
                        if device is None or string_value(device.value) == "cpu":
                            return None
                    off = keyword_is(call, "enabled", "False") or (
                        self.name(call.func) == "torch.cuda.amp.autocast"
                        and bool(call.args)
                        and isinstance(call.args[0].value, cst.Name)
                        and call.args[0].value.value == "False"
                    )
                    return None if off else call
            above = self.enclosing(above, cst.With, cst.FunctionDef)
        return None
