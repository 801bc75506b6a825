"""TDL201 create-then-move: a tensor is built on the host, then copied to where it could have been built."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, RANDOM_FACTORIES, Move, balanced, move_of

# Arguments after which the place of the tensor, or of the generator that fills it, is somebody's choice.
_SETTLED = ("device", "out", "pin_memory", "requires_grad", "generator")
# Whoever seeds may want the CPU's random stream on purpose.
_SEEDING = ("manual_seed", "manual_seed_all", "seed_everything", "set_seed", "seed")
_EXACT = frozenset(f"torch.{name}" for name in "zeros ones empty full arange linspace eye tensor as_tensor".split())
_SAME_IN_ANY_DTYPE = frozenset(f"torch.{name}" for name in "zeros ones empty eye tensor".split())
# What these change is not where the tensor is.
_KEEPING = frozenset("float long int bool half double bfloat16 unsqueeze view reshape repeat expand".split())
_NAMES = "|".join(sorted(name.partition(".")[2] for name in FACTORIES))


class CreateThenMove(Check):
    rules = (
        Rule(
            "TDL201",
            "create-then-move",
            "a tensor built on the CPU and moved at once, instead of built with `device=`",
            fix="safe",
        ),
    )
    triggers = (("to", "cuda"),)
    patterns = (rf"\b(?:{_NAMES})\s*\({balanced()}\)(?:\s*\.\s*\w+\s*\({balanced(1)}\))*?\s*\.\s*(?:to|cuda)\s*\(",)

    def visit_Call(self, node: cst.Call) -> None:
        move = move_of(node)
        if move is None or move.to_cpu or not isinstance(move.receiver, cst.Call):
            return
        factory = self._maker(move.receiver)
        name = self.name(factory.func)
        if name not in FACTORIES or has_unpacking(factory):
            return
        if any(argument(factory, keyword) for keyword in _SETTLED):
            return
        function = self.enclosing(node, cst.FunctionDef)
        if function is not None and function.name.value == "__getitem__":
            # In a loader's worker the tensor belongs on the CPU: TDL301 says so.
            return
        random = name in RANDOM_FACTORIES
        if random and not self.file.words.isdisjoint(_SEEDING):
            return
        note = "; the random numbers then come from the device's own generator" if random else ""
        code = self.code(factory.func)
        self.report(
            node,
            "TDL201",
            f"`{code}(…)` builds the tensor on the CPU and copies it; build it in place: `device={move.device}`{note}",
            fix=self._fix(node, factory, move, random),
        )

    def _maker(self, node: cst.Call) -> cst.Call:
        """The call at the head of a chain such as `torch.arange(n).float()`."""
        while isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPING:
            if not isinstance(node.func.value, cst.Call):
                break
            node = node.func.value
        return node

    def _fix(self, node: cst.Call, factory: cst.Call, move: Move, random: bool) -> Fix | None:
        if factory.lpar or any(arg.keyword is None or arg.keyword.value != "non_blocking" for arg in move.others):
            return None
        new = f"device={move.device}"
        if move.dtype is not None:
            if argument(factory, "dtype") is not None or self.name(factory.func) not in _SAME_IN_ANY_DTYPE:
                return None
            new += f", dtype={self.code(move.dtype.value)}"
        added = add_argument(self.unit, factory, new)
        if move.receiver is not factory and move.dtype is not None:
            return None
        start, end = self.unit.offsets(move.receiver)[1], self.unit.offsets(node)[1]
        if added is None or "#" in self.file.source.text[start:end]:
            return None
        title = f"Build the tensor with `device={move.device}`"
        safe = not random and self.name(factory.func) in _EXACT
        return Fix(title, (added, Edit(start, end, "")), "safe" if safe else "unsafe")
