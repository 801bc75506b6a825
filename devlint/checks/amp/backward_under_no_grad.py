"""TDL418 backward-under-no-grad: a backward pass of a loss that has no graph."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.lazycst import cst
from devlint.semantics.flow.api import LOSS_CLASSES
from devlint.semantics.grad_mode import GradMode
from devlint.semantics.graphs import Env, Graphs
from devlint.semantics.origins import Origins
from devlint.semantics.training import code_below, is_backward, method_call
from devlint.semantics.tree import dotted

_LOSS = re.compile(r"^(?:self\.)?(?:criterion|loss_fn|loss_func|loss_function|ce_loss|mse_loss)$")
# `engine.backward(loss)` takes the loss, `output.backward(gradient)` a gradient.
_ENGINE = re.compile(r"accelerator|fabric|engine|^self$|trainer|manager", re.I)
_LOSES = ("no_grad", "inference_mode", "set_grad_enabled", "detach", "data")


class BackwardUnderNoGrad(Check):
    rules = (Rule("TDL418", "backward-under-no-grad", "a backward pass of a loss that has no graph"),)
    triggers = (("backward",),)
    patterns = (r"\.backward\(",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._modes = GradMode(file.names)
        self._origins = Origins(file)
        # Gradients that a callee switches on again would not be seen.
        self._silent = "enable_grad" in file.words or file.words.isdisjoint(_LOSES)
        self._told: set[cst.CSTNode] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if not self._silent and any(method_call(inner, "backward") for inner in code_below(self.unit, node)):
            self._graphs().function(node, self._mode_of_calls(node))

    def visit_Module(self, node: cst.Module) -> None:
        if self._silent or self.unit.name:
            return
        if any(method_call(inner, "backward") for inner in code_below(self.unit, node)):
            self._graphs().module(node)

    def _graphs(self) -> Graphs:
        return Graphs(self.unit, self._modes, self._is_plain_loss, self._call)

    def _mode_of_calls(self, function: cst.FunctionDef) -> bool | None:
        """False where the file calls a function of its own only without gradients."""
        name = function.name.value
        if self.parent(function) is not self.unit.module:
            return True
        calls = [
            (call, unit)
            for unit in self.file.units
            if name in unit.words and (unit is not self.unit or unit.text.count(name) > 1)
            for call in unit.below(unit.module, cst.Call, cst.Arg)
            if dotted(call.func if isinstance(call, cst.Call) else call.value) == name
        ]
        off = bool(calls) and all(
            isinstance(call, cst.Call) and self._modes.around(call, unit) is False for call, unit in calls
        )
        return not off

    def _is_plain_loss(self, call: cst.Call) -> bool:
        """Whether a call is a loss of torch's own, which has no parameters, or by its name stands for one."""
        if self.name(call.func).startswith("torch.nn.functional."):
            return True
        func = call.func
        origins = self._origins.of(func, self.unit)
        known = [origin for origin in origins if origin is not None]
        if all(
            isinstance(origin.node, cst.Call)
            and self.file.names.qualified(origin.node.func, origin.unit) in LOSS_CLASSES
            for origin in known
        ):
            return bool(known) or _LOSS.match(dotted(func)) is not None
        return False

    def _call(self, call: cst.Call, graphs: Graphs, env: Env, mode: bool | None) -> None:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "backward" or call in self._told:
            return
        if self.name(call.func) == "torch.autograd.backward" and call.args:
            loss = call.args[0].value
        elif is_backward(call):
            loss = call.func.value
        elif len(call.args) == 1 and _ENGINE.search(dotted(call.func.value)):
            loss = call.args[0].value
        else:
            return
        known = graphs.value(loss, env, mode)
        if known is None or known.lost is None:
            return
        self._told.add(call)
        self.report(
            call,
            "TDL418",
            f"`{self.code(loss)}` has no graph, {known.why.replace('here', f'at line {self.unit.span(known.lost).line}')}: this "
            "raises a RuntimeError, and nothing is trained; compute the loss with gradients on",
            evidence=[(known.lost, known.why)],
        )
