"""Which names hold tensors without a graph at each point of a function, and where the graph was lost.

One pass over the statements with an environment per way; where ways join, only what all of them agree on stays. A name that
is not in the environment is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from devlint.lazycst import cst
from devlint.semantics.grad_mode import GradMode
from devlint.semantics.training import code_below
from devlint.semantics.tree import dotted
from devlint.units import Unit

_SHAPING = frozenset("mean sum clone view long item".split())
_SAME = frozenset("to float double half cuda cpu contiguous type reshape expand flatten squeeze unsqueeze".split())
# What may hand out a graph although it is called without gradients: a new module, a closure, a method that switches them on.
_GIVES_GRAPH = re.compile(r"grad|closure|Variable|\b[A-Z]\w+$|attack|load|build|create|make|init")
_LOADER = re.compile(r"load|_dl\b|\bdl\b|batch|data", re.I)
_COUNT = re.compile(r"accum|step|num|batch|iter|len|size|world|^[kn]$|scale|weight|coef|lambda|alpha|beta|temp", re.I)
# The `data` of a PackedSequence is a field, and keeps its graph.
_PACKED = re.compile(r"\bpack_|packed", re.I)
_TARGET = re.compile(r"^(?:y|yb|labels?|targets?|tgt|gt|ground_truth|y_true)$")


@dataclass(frozen=True)
class NoGraph:
    """A value that requires no gradient; `lost` is the node that saw to it, None for data that never had one."""

    lost: cst.CSTNode | None = None
    why: str = ""


Env = dict[str, NoGraph]


class Graphs:
    """Follows one function; `loses` calls back with each statement's calls, their environment, and the gradient mode."""

    def __init__(
        self,
        unit: Unit,
        modes: GradMode,
        is_plain_loss: Callable[[cst.Call], bool],
        seen: Callable[[cst.Call, Graphs, Env, bool | None], None],
    ) -> None:
        self._unit, self._modes, self._is_plain_loss, self._seen = unit, modes, is_plain_loss, seen
        self._mode: bool | None = True
        self._reason: cst.CSTNode = unit.module
        self._jumps: list[list[Env]] = []
        self._quiet = 0

    def function(self, function: cst.FunctionDef, mode: bool | None = True) -> None:
        """Follow a function's body from its decorators on, or from the `mode` in which it is called."""
        self._mode = self._modes.of_function(function, self._unit) if mode is True else mode
        params = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
        env = {param.name.value: NoGraph() for param in params if _TARGET.match(param.name.value)}
        self._reason = function.decorators[0] if function.decorators else function
        self._block(function.body.body, env)

    def module(self, module: cst.Module) -> None:
        """Follow a module's own statements."""
        self._block(module.body, {})

    def value(self, node: cst.BaseExpression, env: Env, mode: bool | None) -> NoGraph | None:
        """What is known of an expression: that it has no graph, or nothing."""
        if isinstance(node, cst.Name):
            return env.get(node.value)
        if isinstance(node, (cst.Integer, cst.Float)):
            return NoGraph()
        if isinstance(node, cst.UnaryOperation):
            return self.value(node.expression, env, mode)
        if isinstance(node, cst.BinaryOperation):
            if mode is False:
                return NoGraph(self._reason, "computed without gradients here")
            return self._both(self.value(node.left, env, mode), self._operand(node.right, env, mode))
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            if isinstance(node, cst.Attribute) and node.attr.value == "data" and dotted(node).count(".") == 1:
                packed = _PACKED.search(self._unit.source.text) is not None
                return None if packed else NoGraph(node, "`.data` leaves the graph behind here")
            inner = self.value(node.value, env, mode)
            return inner if inner is not None and (inner.lost is None or "loss" in self._text(node)) else None
        return self._call(node, env, mode) if isinstance(node, cst.Call) else None

    def _call(self, node: cst.Call, env: Env, mode: bool | None) -> NoGraph | None:
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        receiver = node.func.value if isinstance(node.func, cst.Attribute) else None
        if method == "detach" and not node.args:
            return NoGraph(node, "detached from its graph here")
        if any(arg.keyword is not None and arg.keyword.value == "requires_grad" for arg in node.args):
            return None
        if method in ("requires_grad_", "apply"):
            return None
        if receiver is not None and method in _SAME:
            return self.value(receiver, env, mode)
        if method == "scale" and len(node.args) == 1:
            return self.value(node.args[0].value, env, mode)
        if mode is False and not _GIVES_GRAPH.search(dotted(node.func) or method or "grad"):
            return NoGraph(self._reason, "computed without gradients here")
        if receiver is not None and method in _SHAPING:
            return self.value(receiver, env, mode)
        if dotted(node.func) == "sum" and node.args:
            inner = node.args[0].value
            values = isinstance(inner, cst.Call) and dotted(inner.func).endswith(".values")
            name = inner.func.value if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) else inner
            return self.value(name if values else inner, env, mode)
        if len(node.args) >= 2 and self._is_plain_loss(node):
            first, second = (self.value(arg.value, env, mode) for arg in node.args[:2])
            return self._both(first, second)
        return None

    def _operand(self, node: cst.BaseExpression, env: Env, mode: bool | None) -> NoGraph | None:
        """The right side of an operation: a count or a weight is no tensor with a graph."""
        known = self.value(node, env, mode)
        if known is None and _COUNT.search(self._text(node)) and not isinstance(node, cst.BinaryOperation):
            return NoGraph()
        return known

    def _both(self, one: NoGraph | None, other: NoGraph | None) -> NoGraph | None:
        if one is None or other is None:
            return None
        return one if one.lost is not None else other

    def _text(self, node: cst.CSTNode) -> str:
        return self._unit.module.code_for_node(node)

    def _block(self, statements: Sequence[cst.CSTNode], env: Env | None) -> Env | None:
        """The environment behind a block; None where no way gets there."""
        for statement in statements:
            if env is None:
                return None
            env = self._statement(statement, env)
        return env

    def _statement(self, node: cst.CSTNode, env: Env) -> Env | None:
        if isinstance(node, cst.SimpleStatementLine):
            return self._block(node.body, env)
        if isinstance(node, cst.If):
            self._calls(node.test, env)
            before = self._mode
            first = self._block(node.body.body, dict(env))
            mode_of_first, self._mode = self._mode, before
            orelse = node.orelse
            if isinstance(orelse, cst.If):
                other = self._statement(orelse, dict(env))
            else:
                other = self._block(orelse.body.body, dict(env)) if orelse is not None else dict(env)
            if other is None:
                self._mode = mode_of_first
            elif first is not None and mode_of_first is not self._mode:
                self._mode = None
            return _join(first, other)
        if isinstance(node, (cst.For, cst.While)):
            return self._loop(node, env)
        if isinstance(node, cst.With):
            return self._with(node, env)
        if isinstance(node, cst.Try):
            tried = self._block(node.body.body, dict(env))
            for handler in node.handlers:
                tried = _join(tried, self._block(handler.body.body, {}))
            return self._block(node.finalbody.body.body, tried or {}) if node.finalbody is not None else tried
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return env
        self._calls(node, env)
        if isinstance(node, (cst.Continue, cst.Break)) and self._jumps:
            self._jumps[-1].append(env)
        if isinstance(node, (cst.Return, cst.Raise, cst.Continue, cst.Break)):
            return None
        mode = self._modes.of_statement(node, self._unit, self._mode)
        if mode is not self._mode:
            self._mode, self._reason = mode, node
        self._assign(node, env)
        return env

    def _with(self, node: cst.With, env: Env) -> Env | None:
        mode, reason = self._mode, self._reason
        for item in node.items:
            self._calls(item.item, env)
            new = self._modes.of_context(item.item, self._unit, self._mode)
            if new is False and self._mode is not False:
                self._reason = item.item
            self._mode = new
        after = self._block(node.body.body, env)
        self._mode, self._reason = mode, reason
        return after

    def _loop(self, node: cst.For | cst.While, env: Env) -> Env | None:
        header = node.iter if isinstance(node, cst.For) else node.test
        self._calls(header, env)
        if self._quiet:
            # The loop around goes through this one again.
            return self._round(node, env)
        self._quiet += 1
        entry = self._round(node, self._round(node, env))
        self._quiet -= 1
        return self._round(node, entry)

    def _round(self, node: cst.For | cst.While, env: Env) -> Env:
        """What holds before and behind one round of a loop."""
        entry = dict(env)
        if isinstance(node, cst.For):
            targets = [inner.value for inner in self._unit.below(node.target) if isinstance(inner, cst.Name)]
            text = self._text(node.iter)
            data = _LOADER.search(text) is not None and "zip" not in text
            for name in targets:
                entry.pop(name, None)
                if data:
                    entry[name] = NoGraph()
        self._jumps.append([])
        after = self._block(node.body.body, entry)
        joined: Env | None = env
        for left in (after, *self._jumps.pop()):
            joined = _join(joined, left)
        return joined if joined is not None else {}

    def _calls(self, node: cst.CSTNode, env: Env) -> None:
        if self._quiet:
            return
        for inner in code_below(self._unit, node):
            if isinstance(inner, cst.Call):
                self._seen(inner, self, env, self._mode)

    def _assign(self, node: cst.CSTNode, env: Env) -> None:
        if isinstance(node, cst.Assign):
            known = self.value(node.value, env, self._mode)
            for target in node.targets:
                self._bind(target.target, known, node.value, env)
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            self._bind(node.target, self.value(node.value, env, self._mode), None, env)
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            name = node.target.value
            added = self._operand(node.value, env, self._mode)
            if self._mode is False and name in env:
                env[name] = NoGraph(self._reason, "computed without gradients here")
            elif self._mode is not False:
                both = self._both(env.get(name), added)
                env.pop(name, None)
                if both is not None:
                    env[name] = both
        elif isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
            # `loss.requires_grad_()` and other changes in place.
            func = node.value.func
            if isinstance(func, cst.Attribute) and func.attr.value.endswith("_"):
                env.pop(dotted(func.value), None)

    def _bind(self, target: cst.CSTNode, known: NoGraph | None, value: cst.CSTNode | None, env: Env) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            parts = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
            for index, element in enumerate(target.elements):
                if len(parts) == len(target.elements):
                    known = self.value(parts[index].value, env, self._mode)
                self._bind(element.value, known, None, env)
            return
        name = dotted(target) or dotted(getattr(target, "value", target)).partition(".")[0]
        root = name.partition(".")[0]
        env.pop(root, None)
        if known is not None and name == root and isinstance(target, cst.Name):
            env[name] = known


def _join(one: Env | None, other: Env | None) -> Env | None:
    if one is None or other is None:
        return other if one is None else one
    return {name: known if known.lost is not None else other[name] for name, known in one.items() if name in other}
