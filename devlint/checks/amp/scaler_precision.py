"""TDL408 scaler-with-bfloat16 and TDL409 half-model-with-scaler: what a GradScaler is not made for."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.autocast import Autocasts
from devlint.semantics.origins import Origins
from devlint.semantics.training import code_below, method_call
from devlint.semantics.tree import dotted
from devlint.units import Unit

_HALF = frozenset(("torch.float16", "torch.half"))


class ScalerPrecision(Check):
    rules = (
        Rule("TDL408", "scaler-with-bfloat16", "a `GradScaler` around a bfloat16 autocast"),
        Rule("TDL409", "half-model-with-scaler", "a `GradScaler` that steps a model of float16 parameters"),
    )
    triggers = (("scale", "step", "unscale_"),)
    patterns = (r"\.(?:scale|step|unscale_)\(",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._autocasts = Autocasts(file)
        self._origins = Origins(file)
        self._possible = "GradScaler" in file.words
        self._bfloat16 = "bfloat16" in file.words
        self._half = not file.words.isdisjoint(("half", "float16"))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._scope(node)

    def visit_Module(self, node: cst.Module) -> None:
        if not self.unit.name:
            self._scope(node)

    def _scope(self, scope: cst.CSTNode) -> None:
        if not self._possible:
            return
        nodes = list(code_below(self.unit, scope))
        if self._bfloat16:
            self._check_bfloat16(nodes)
        if self._half:
            for node in nodes:
                if method_call(node, "step", "unscale_") and isinstance(node, cst.Call) and len(node.args) == 1:
                    if self._check_half(node):
                        return

    def _check_bfloat16(self, nodes: list[cst.CSTNode]) -> None:
        blocks = [
            call
            for node in nodes
            if isinstance(node, cst.With)
            for item in node.items
            if (call := self._autocasts.call(item.item, self.unit)) is not None and not self._autocasts.is_off(call)
        ]
        if not blocks or any(self._autocasts.dtypes(b, self._unit_of(b)) != {"torch.bfloat16"} for b in blocks):
            return
        for node in nodes:
            if not method_call(node, "scale") or not isinstance(node, cst.Call) or len(node.args) != 1:
                continue
            assert isinstance(node.func, cst.Attribute)
            scaler = self._autocasts.scaler(node.func.value, self.unit)
            if scaler is not None and self._is_on(scaler, blocks):
                self.report(
                    node,
                    "TDL408",
                    f"`{self.code(node.func.value)}` scales a loss that autocast computes in bfloat16, whose range is that of float32: "
                    "nothing underflows, and steps may be skipped for nothing; drop the scaler, or give it "
                    "`enabled=dtype == torch.float16`",
                    evidence=[(block, "autocast in bfloat16") for block in blocks if self._unit_of(block) is self.unit],
                )
                return

    def _is_on(self, scaler: cst.Call, blocks: list[cst.Call]) -> bool:
        """Whether the scaler is on wherever one of the blocks is."""
        enabled = argument(scaler, "enabled")
        if enabled is None:
            return not any(arg.star for arg in scaler.args)
        text = self.unit.module.code_for_node(enabled.value)
        given = [argument(block, "enabled") for block in blocks]
        return text == "True" or any(
            arg is not None and self.unit.module.code_for_node(arg.value) == text for arg in given
        )

    def _unit_of(self, node: cst.CSTNode) -> Unit:
        return next((unit for unit in self.file.units if node in unit.parents), self.unit)

    def _check_half(self, step: cst.Call) -> bool:
        assert isinstance(step.func, cst.Attribute)
        scaler = self._autocasts.scaler(step.func.value, self.unit)
        if scaler is None or argument(scaler, "enabled") is not None:
            return False
        origins = self._origins.of(step.args[0].value, self.unit)
        if len(origins) != 1 or origins[0] is None or not isinstance(origins[0].node, cst.Call):
            return False
        made, unit = origins[0].node, origins[0].unit
        params = made.args[0].value if made.args else None
        if not self.file.names.qualified(made.func, unit).startswith("torch.optim."):
            return False
        if not method_call(params, "parameters") if params is not None else True:
            return False
        assert isinstance(params, cst.Call) and isinstance(params.func, cst.Attribute)
        halved = self._halved(params.func.value, unit)
        if halved is None:
            return False
        name = dotted(params.func.value)
        self.report(
            step,
            "TDL409",
            f"the parameters of `{name}` are float16 since line {unit.span(halved).line}, and GradScaler refuses float16 gradients: this "
            "raises a ValueError; keep the model in float32 and run it under `torch.autocast`",
            evidence=[(halved, "made float16 here")] if unit is self.unit else [],
        )
        return True

    def _halved(self, model: cst.BaseExpression, unit: Unit) -> cst.Call | None:
        """The call that makes the parameters of `model` float16, where none makes them float32 again."""
        name = dotted(model)
        scope = unit.enclosing(model, cst.ClassDef if name.startswith("self.") else cst.FunctionDef) or unit.module
        nodes = unit.below(scope)
        calls = [node for node in nodes if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)]
        of_model = [call for call in calls if isinstance(call.func, cst.Attribute) and dotted(call.func.value) == name]
        made = [origin.node for origin in self._origins.of(model, unit) if origin is not None]
        of_model += [call for call in made if isinstance(call, cst.Call) and call in unit.parents]
        if not name or any(method_call(call, "float", "double", "bfloat16") for call in of_model):
            return None
        for call in of_model:
            if method_call(call, "half") and not call.args:
                return call if unit.enclosing(call, cst.If) is None else None
            if method_call(call, "to") and any(
                self.file.names.qualified(arg.value, unit) in _HALF for arg in call.args
            ):
                return call if unit.enclosing(call, cst.If) is None else None
        return None
