"""The calls that make up a training step, found in a stretch of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from devlint.lazycst import cst
from devlint.semantics.tree import dotted
from devlint.units import Unit

_OPTIMIZER = re.compile(r"(?:^|[._])(?:\w*optim\w*|opt\w?|opt_\w+|\w+_opt|adam\w?|sgd|solver)$", re.I)
_NOT_OPTIMIZER = re.compile(
    r"sched|lr_|warmup|option|opts$|scaler|env|trainer|engine|accelerator|simul|world|sampler", re.I
)


@dataclass(frozen=True)
class StepCall:
    """A call that steps an optimizer: `optimizer.step()`, or `scaler.step(optimizer)` with its scaler."""

    node: cst.Call
    optimizer: str
    scaler: str = ""


def method_call(node: cst.CSTNode, *names: str) -> bool:
    """Whether `node` is a call of a method of one of these names."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in names


def step_call(unit: Unit, node: cst.CSTNode) -> StepCall | None:
    """The optimizer step that `node` is, or None."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or node.func.attr.value != "step":
        return None
    receiver = dotted(node.func.value) or unit.code(node.func.value)
    if looks_like_optimizer(receiver) and not node.args:
        return StepCall(node, receiver)
    if "scaler" in receiver.lower() and len(node.args) == 1:
        return StepCall(node, unit.code(node.args[0].value), receiver)
    return None


def looks_like_optimizer(name: str) -> bool:
    """Whether a dotted name, perhaps with an index, is one that optimizers are given."""
    bare = re.sub(r"\[[^\]]*\]$", "", name)
    return _OPTIMIZER.search(bare) is not None and _NOT_OPTIMIZER.search(bare.rpartition(".")[2]) is None


def is_backward(node: cst.CSTNode) -> bool:
    """Whether `node` is a backward pass of a loss, rather than of an engine that takes the loss."""
    if not method_call(node, "backward"):
        return False
    assert isinstance(node, cst.Call)
    return all(arg.keyword is not None or (index == 0 and _is_gradient(arg)) for index, arg in enumerate(node.args))


def _is_gradient(arg: cst.Arg) -> bool:
    """`output.backward(gradient)` takes the gradient first; `engine.backward(loss)` takes the loss."""
    return "grad" in dotted(arg.value).lower() or isinstance(arg.value, cst.Call)


def code_below(unit: Unit, scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes below `scope` that run with it: those of functions and classes defined inside apart."""
    skip_until = -1
    base = unit.index_of(scope)
    for offset, node in enumerate(unit.below(scope)):
        if base + offset < skip_until:
            continue
        if node is not scope and isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            skip_until = unit.end_of(node)
            continue
        yield node
