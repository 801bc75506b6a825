"""Which expressions of a file surely ask an accelerator to compute: the calls and products whose result is on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.helpers import Helper
from devlint.semantics.flow.interpreter import Run
from devlint.semantics.flow.meets import Operand
from devlint.semantics.flow.values import Value
from devlint.semantics.flow.world import World
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File
    from devlint.semantics.flow.expressions import Expressions

# These return a view, or move or make data: the device has little or nothing to compute.
_NO_WORK = frozenset(
    "to cuda cpu xpu mps type_as detach view reshape squeeze unsqueeze expand expand_as permute transpose t contiguous "
    "requires_grad_ chunk split unbind narrow view_as T mT flatten movedim swapaxes unfold unflatten ravel pin_memory "
    "copy_ zero_ fill_ clone float half double bfloat16 long int bool iter next deepcopy dict list tuple get pop "
    "from_numpy".split()
)
_DEPTH = 2


class DeviceWork(World):
    """A world that notes the work it sees being done on an accelerator."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self.work: set[cst.CSTNode] = set()
        """Calls and matrix products whose result is a tensor on what may be an accelerator."""
        self._ran_module_level = False
        self._watched: set[tuple[object, ...]] = set()

    def watch(self, unit: Unit) -> None:
        """Run a unit, and note the work of its own statements and of those that it calls; the module level is run whole."""
        if unit.name:
            self.interpret(unit)
        elif not self._ran_module_level:
            self._ran_module_level = True
            env: dict[str, Value] = {}
            for other in self.file.units:
                if not other.name:
                    run = _Watch(self, other)
                    run.env = env
                    run.block(other.module.body)
                    env = run.env

    def run_function(self, unit: Unit, node: cst.FunctionDef, owner: cst.ClassDef | None) -> None:
        """Run a function once, and note its work."""
        self._run_watched(unit, node, owner, {}, 0)

    def run_helper(self, run: Run, helper: Helper, operands: list[Operand], node: cst.Call) -> Value:
        """The result of running `helper` with these arguments; what it does with those on an accelerator is noted."""
        function = helper.function
        if isinstance(function, cst.FunctionDef) and not helper.nested and run.depth < _DEPTH:
            given = self._bind(helper, operands)
            key = self._memo_key(function, given)
            placed = any(v.place is not None and v.place.kind == "accelerator" for v in given.values())
            if placed and key not in self._watched and function not in self._active:
                self._watched.add(key)
                self._run_watched(helper.unit, function, helper.owner, given, run.depth + 1)
        return super().run_helper(run, helper, operands, node)

    def _run_watched(
        self, unit: Unit, node: cst.FunctionDef, owner: cst.ClassDef | None, given: dict[str, Value], depth: int
    ) -> None:
        in_module = owner is not None and self.is_module(unit, owner)
        run = _Watch(self, unit, class_node=owner, in_module=in_module, function=node, depth=depth)
        run.building = owner is not None and node.name.value == "__init__"
        self._active.append(node)
        run.parameters(node, given, called=bool(given))
        run.suite(node.body)
        self._active.pop()

    def call(self, run: Expressions, node: cst.Call, qualified: str) -> Value:
        """The result of a call of something that is not torch's own; noted, if it is work."""
        result = super().call(run, node, qualified)
        self.note(node, result)
        return result

    def note(self, node: cst.Call | cst.BinaryOperation, result: Value) -> None:
        """Note `node`, if its result is on an accelerator and took computing."""
        if result.kind != "tensor" or result.place is None or result.place.kind != "accelerator":
            return
        if isinstance(node, cst.Call):
            called = node.func.attr.value if isinstance(node.func, cst.Attribute) else dotted(node.func)
            made = f"torch.{called}" in api.FACTORIES | api.LIKE | api.CPU_CONSTRUCTORS
            if called in _NO_WORK or called in api.NEW or made:
                return
        self.work.add(node)


class _Watch(Run):
    """The run of one function, or of the module level, of which every operation is noted."""

    def _Call(self, node: cst.Call) -> Value:
        result = super()._Call(node)
        assert isinstance(self.world, DeviceWork)
        func = node.func
        if isinstance(func, cst.Attribute) and func.attr.value in ("backward", "forward"):
            receiver = self.value(func.value)
            if receiver.kind == "module" or func.attr.value == "backward":
                self.world.note(node, Value("tensor", receiver.place))
        else:
            self.world.note(node, result)
        return result

    def _BinaryOperation(self, node: cst.BinaryOperation) -> Value:
        result = super()._BinaryOperation(node)
        assert isinstance(self.world, DeviceWork)
        if isinstance(node.operator, cst.MatrixMultiply):
            self.world.note(node, result)
        return result
