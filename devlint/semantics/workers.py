"""What runs in the workers of the data loaders of one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from devlint.checks.base import File
from devlint.edits import has_unpacking
from devlint.lazycst import cst
from devlint.semantics.data_loader import DATA_LOADER, is_literal, option
from devlint.semantics.tree import dotted
from devlint.units import Unit

_SPAWN = re.compile(r"""["'](?:spawn|forkserver)["']""")
_TRANSFORMS = ("transform", "target_transform", "transforms")


@dataclass(frozen=True)
class WorkerCode:
    """A function or lambda that workers run, and how a message calls it."""

    unit: Unit
    node: cst.CSTNode
    where: str


class Workers:
    """The loaders of one file, and the code that their workers run."""

    def __init__(self, file: File) -> None:
        self._file = file

    @cached_property
    def loaders(self) -> list[tuple[Unit, cst.Call]]:
        """The calls of `DataLoader`."""
        return [
            (unit, call)
            for unit in self._file.units
            if "DataLoader" in unit.words
            for call in unit.below(unit.module, cst.Call)
            if self._file.names.qualified(call.func, unit) == DATA_LOADER
        ]

    @cached_property
    def spawned(self) -> bool:
        """Whether the file asks for workers that are spawned, which may use CUDA."""
        words = self._file.words
        starts = not words.isdisjoint(("set_start_method", "get_context", "multiprocessing_context"))
        return starts and _SPAWN.search(self._file.source.text) is not None

    def starts(self, call: cst.Call) -> bool:
        """Whether a loader starts workers: it is given a number of them that is not the literal 0."""
        workers = option(call, "num_workers")
        return workers is not None and not is_literal(workers, "0") and not has_unpacking(call)

    def functions(self, unit: Unit, call: cst.Call) -> Iterator[WorkerCode]:
        """The collate and worker functions of a loader."""
        for name in ("collate_fn", "worker_init_fn"):
            arg = option(call, name)
            if arg is not None:
                yield from self._code(unit, arg.value, f"`{name}`")

    def transforms(self) -> Iterator[WorkerCode]:
        """The transforms of samples that the file defines, and hands to a dataset or composes."""
        for unit in self._file.units:
            if unit.words.isdisjoint(("Compose", *_TRANSFORMS)):
                continue
            for call in unit.below(unit.module, cst.Call):
                for arg in call.args:
                    if arg.keyword is not None and arg.keyword.value in _TRANSFORMS:
                        yield from self._code(unit, arg.value, "this transform")
                composed = call.args[0].value if dotted(call.func).endswith("Compose") and call.args else None
                if isinstance(composed, (cst.List, cst.Tuple)):
                    for element in composed.elements:
                        yield from self._code(unit, element.value, "this transform")

    def _code(self, unit: Unit, node: cst.BaseExpression, where: str) -> Iterator[WorkerCode]:
        """The function, lambda, or method `__call__` of an object that an expression stands for."""
        if isinstance(node, cst.Lambda):
            yield WorkerCode(unit, node, where)
            return
        name = dotted(node)
        for function in unit.below(unit.module, cst.FunctionDef):
            if function.name.value == name:
                yield WorkerCode(unit, function, where)
                return
        made = dotted(node.func) if isinstance(node, cst.Call) else self._class_of(unit, node)
        for other in self._file.units:
            last = other.module.body[-1] if other.name and other.name in (name, made) else None
            if isinstance(last, cst.FunctionDef) and other.name == name:
                yield WorkerCode(other, last, f"`{name}`")
            elif isinstance(last, cst.ClassDef):
                for method in last.body.body:
                    if isinstance(method, cst.FunctionDef) and method.name.value == "__call__":
                        yield WorkerCode(other, method, f"`{other.name}`")

    def _class_of(self, unit: Unit, node: cst.BaseExpression) -> str:
        """The class that a name is assigned an instance of."""
        values = [
            other.value
            for other in unit.below(unit.module, cst.Assign)
            if isinstance(node, cst.Name) and dotted(other.targets[0].target) == node.value
        ]
        value = values[0] if len(values) == 1 else None
        return dotted(value.func) if isinstance(value, cst.Call) else ""

    def holds(self, dataset: str) -> list[tuple[Unit, cst.Call]]:
        """The loaders whose dataset is surely an instance of the class of that name."""
        found = []
        for unit, call in self.loaders:
            given = option(call, "dataset")
            if given is not None:
                made = given.value.func if isinstance(given.value, cst.Call) else None
                if dataset in (dotted(made) if made is not None else "", self._class_of(unit, given.value)):
                    found.append((unit, call))
        return found
