"""What a call does to a device, read off its text alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from devlint.edits import argument, has_unpacking
from devlint.lazycst import cst
from devlint.semantics.tree import dotted

ACCELERATORS = frozenset("cuda xpu mps hpu xla mtia npu mlu musa privateuseone".split())
FACTORIES = frozenset(
    f"torch.{name}"
    for name in "zeros ones empty full arange linspace logspace eye tensor as_tensor range tril_indices triu_indices "
    "hann_window hamming_window blackman_window bartlett_window kaiser_window rand randn randint randperm".split()
)
"""Functions that make a tensor on the default device and take `device=`."""
RANDOM_FACTORIES = frozenset(("torch.rand", "torch.randn", "torch.randint", "torch.randperm"))
_DEVICE_NAME = re.compile(r"(?:^|_|\.)(?:device|dev|gpu|cuda|rank)s?(?:_?id|\d*)(?:$|_|\.)|device", re.I)
_DEVICE_STRING = re.compile(r"(?P<type>[a-z]+)(?::\d+)?")


@dataclass(frozen=True)
class Move:
    """A call of `.to(device, …)`, `.cuda(…)` or `.cpu()` on `receiver`.

    `device` is the text of the target as an expression; `dtype` and `others` are the arguments besides it.
    """

    receiver: cst.BaseExpression
    device: str
    device_node: cst.BaseExpression | None
    dtype: cst.Arg | None
    others: tuple[cst.Arg, ...]

    @property
    def to_cpu(self) -> bool:
        """Whether the target is literally the CPU."""
        return (
            self.device.strip("\"'") == "cpu" or re.fullmatch(r"\w*\.?device\([\"']cpu[\"']\)", self.device) is not None
        )


def string_value(node: cst.CSTNode | None) -> str | None:
    """The value of a plain string literal."""
    if not isinstance(node, cst.SimpleString):
        return None
    text = node.value
    if text[0] in "\"'" and "\\" not in text:
        # Evaluating compiles; nearly every literal can just be cut out.
        quotes = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
        return text[quotes:-quotes]
    if "f" in node.prefix.lower():
        return None
    value = node.evaluated_value
    return value if isinstance(value, str) else None


def pattern_of(node: cst.CSTNode) -> str | None:
    """The value of a string literal; of an f-string, with `{}` for each value in it."""
    if not isinstance(node, cst.FormattedString):
        return string_value(node)
    return "".join(part.value if isinstance(part, cst.FormattedStringText) else "{}" for part in node.parts)


def is_device(node: cst.BaseExpression) -> bool:
    """Whether an argument of `.to()` names a device: a device string, `x.device`, or a name that says so."""
    text = string_value(node)
    if text is not None:
        match = _DEVICE_STRING.fullmatch(text)
        return match is not None and (match["type"] in ACCELERATORS or match["type"] in ("cpu", "meta"))
    if isinstance(node, cst.Call):
        return dotted(node.func).rpartition(".")[2] in ("device", "get_device", "current_device", "best_device")
    name = dotted(node)
    return bool(name) and _DEVICE_NAME.search(name.rpartition(".")[2]) is not None


def move_of(call: cst.Call) -> Move | None:
    """The move that `call` makes, where it surely names a device; else None."""
    if not isinstance(call.func, cst.Attribute) or has_unpacking(call):
        return None
    receiver, method = call.func.value, call.func.attr.value
    empty = cst.Module(body=[])
    if method == "cpu" and not call.args:
        return Move(receiver, '"cpu"', None, None, ())
    if method == "cuda":
        index = argument(call, "device", 0)
        others = tuple(arg for arg in call.args if arg is not index)
        if index is None:
            return Move(receiver, '"cuda"', None, None, others)
        return Move(receiver, empty.code_for_node(index.value), index.value, None, others)
    if method != "to":
        return None
    target = argument(call, "device", 0)
    if target is None or not (target.keyword or is_device(target.value)):
        return None
    dtype = argument(call, "dtype", 1)
    others = tuple(arg for arg in call.args if arg is not target and arg is not dtype)
    return Move(receiver, empty.code_for_node(target.value), target.value, dtype, others)


def keyword_is(call: cst.Call, name: str, value: str) -> bool:
    """Whether `call` is given keyword `name` with the bare name `value`, such as `non_blocking=True`."""
    arg = argument(call, name)
    return arg is not None and isinstance(arg.value, cst.Name) and arg.value.value == value


_FACTORY_WORDS = "|".join(sorted({name.partition(".")[2] for name in FACTORIES} - {"range"}))
FACTORY_CALL = (
    rf"\b(?:{_FACTORY_WORDS}|from_numpy|(?:zeros|ones|empty|full|rand|randn)_like|\w*Tensor)\s*\(|\.range\s*\("
)
"""A regular expression that finds wherever a tensor may be made, for a check's `patterns`."""
MOVES_OR_DEVICE = re.compile(r"\.(?:to|cuda)\(|device")
"""Finds code that may put things on a device, or speaks of one."""
MOVE_CALL = r"\.\s*(?:to|cuda|xpu|mps)\s*\(|device\s*="
"""A regular expression that finds wherever something may be put on a device."""


def balanced(depth: int = 4) -> str:
    """A regular expression for text whose parentheses match, nested up to `depth`: for a check's `patterns`."""
    inner = "[^()]*"
    for _ in range(depth):
        inner = rf"[^()]*(?:\({inner}\)[^()]*)*"
    return inner
