"""TDL408 scaler-with-bfloat16 and TDL409 half-model-with-scaler: a scaler where there is nothing for it to do."""

from __future__ import annotations

from collections.abc import Iterator

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument
from devlint.lazycst import cst
from devlint.semantics.calls import keyword_is
from devlint.semantics.origins import Origins
from devlint.semantics.training import method_call
from devlint.semantics.tree import dotted

_AUTOCAST = frozenset(("torch.amp.autocast", "torch.cuda.amp.autocast"))
_SCALERS = frozenset(("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"))
_HALF = frozenset(("torch.float16", "torch.half"))
# Libraries whose optimizers unscale by themselves.
_WRAPPERS = ("apex", "msamp", "deepspeed", "colossalai", "accelerate")
_BFLOAT16 = "torch.bfloat16"


class ScalerMisuse(Check):
    rules = (
        Rule(
            "TDL408",
            "scaler-with-bfloat16",
            "a GradScaler around an autocast of bfloat16, which needs no scaling",
        ),
        Rule(
            "TDL409",
            "half-model-with-scaler",
            "the optimizer of a model in float16 is stepped through a GradScaler, which raises",
        ),
    )
    triggers = (("scale",), ("bfloat16", "half", "float16"))
    patterns = (r"\.scale\(",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._scope(node)

    def visit_Module(self, node: cst.Module) -> None:
        if not self.unit.name:
            self._scope(node)

    def _scope(self, scope: cst.CSTNode) -> None:
        scales = [
            node
            for node in self.unit.below(scope)
            if isinstance(node, cst.Call)
            and method_call(node, "scale")
            and isinstance(node.func, cst.Attribute)
            and "scaler" in dotted(node.func.value).lower()
            and len(node.args) == 1
        ]
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        if not roots.isdisjoint(_WRAPPERS):
            return
        if not scales or (scope is not self.unit.module and self.enclosing(scales[0], cst.FunctionDef) is not scope):
            return
        self._bfloat16(scope, scales[0])
        self._half(scope, scales[0])

    def _bfloat16(self, scope: cst.CSTNode, scale: cst.Call) -> None:
        blocks = [
            node for node in self.unit.below(scope) if isinstance(node, cst.Call) and self.name(node.func) in _AUTOCAST
        ]
        dtypes = [argument(node, "dtype", 1 if self.name(node.func) == "torch.amp.autocast" else 2) for node in blocks]
        if not blocks or any(dtype is None or self.name(dtype.value) != _BFLOAT16 for dtype in dtypes):
            return
        assert isinstance(scale.func, cst.Attribute)
        made = self._scaler(scale.func.value)
        if made is None:
            return
        name = dotted(scale.func.value)
        self.report(
            scale,
            "TDL408",
            f"`{name}` scales the loss of a bfloat16 autocast, whose exponents reach as far as float32's: it only costs; drop it, or make "
            "it with `enabled=` for float16 alone",
            evidence=[(blocks[0], "autocast is bfloat16 here")],
        )

    def _scaler(self, node: cst.BaseExpression) -> cst.Call | None:
        """The call that made the scaler, where it is surely one that is on."""
        origins = self._origins.of(node, self.unit)
        if len(origins) != 1 or origins[0] is None:
            return None
        made, unit = origins[0].node, origins[0].unit
        if not isinstance(made, cst.Call) or self.file.names.qualified(made.func, unit) not in _SCALERS:
            return None
        on = argument(made, "enabled") is None or keyword_is(made, "enabled", "True")
        return made if on else None

    def _half(self, scope: cst.CSTNode, scale: cst.Call) -> None:
        assert isinstance(scale.func, cst.Attribute)
        steps = [
            node
            for node in self.unit.below(scope)
            if isinstance(node, cst.Call)
            and method_call(node, "step")
            and len(node.args) == 1
            and isinstance(node.func, cst.Attribute)
            and dotted(node.func.value) == dotted(scale.func.value)
        ]
        owner = self.enclosing(scale, cst.ClassDef)
        trained = {name for step in steps for name in self._models_of(step.args[0].value)}
        trained |= self._called_for(scope, scale.args[0].value)
        for node in self.unit.below(owner or scope):
            if isinstance(node, cst.Call) and steps and self._halves(node):
                model = dotted(self._head(node))
                if model in trained and model:
                    self.report(
                        steps[0],
                        "TDL409",
                        f"the parameters of `{model}` are float16, and so are their gradients: `Attempting to unscale FP16 gradients`; keep the "
                        "model in float32, and let autocast choose",
                        evidence=[(node, f"`{model}` is turned into float16 here")],
                    )
                    return

    def _halves(self, node: cst.Call) -> bool:
        if method_call(node, "half") and not node.args:
            return True
        if not method_call(node, "to"):
            return False
        return any(self.name(arg.value) in _HALF for arg in node.args)

    def _head(self, node: cst.CSTNode) -> cst.CSTNode:
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value
        return node

    def _models_of(self, optimizer: cst.BaseExpression) -> Iterator[str]:
        """The modules whose `parameters()` the optimizer was built on."""
        for origin in self._origins.of(optimizer, self.unit):
            if origin is not None and isinstance(origin.node, cst.Call) and origin.node.args:
                given = origin.node.args[0].value
                if isinstance(given, cst.Call) and dotted(given.func).endswith(".parameters"):
                    yield dotted(given.func).rpartition(".")[0]

    def _called_for(self, scope: cst.CSTNode, loss: cst.BaseExpression) -> set[str]:
        """The one module that the loss is computed with, where there is but one."""
        values = [
            node.value
            for node in self.unit.below(scope)
            if isinstance(node, cst.Assign) and dotted(node.targets[0].target) == dotted(loss) != ""
        ]
        called = {
            dotted(inner.func)
            for value in values
            for inner in self.unit.below(value)
            if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Name) and not self.name(inner.func)
        }
        return called if len(called) == 1 else set()
