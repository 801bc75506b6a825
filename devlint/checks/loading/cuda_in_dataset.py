"""TDL301 cuda-in-dataset: accelerator work where forked workers may run it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, Rule
from devlint.edits import argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, move_of, string_value
from devlint.semantics.data_loader import DATA_LOADER, is_literal, option
from devlint.semantics.tree import dotted

_DATASETS = frozenset(
    f"torch.utils.data.{name}" for name in ("Dataset", "IterableDataset", "MapDataPipe", "IterDataPipe")
)
_METHODS = frozenset(("__getitem__", "__getitems__", "__iter__"))
_SPAWN = re.compile(r"""["'](?:spawn|forkserver)["']""")


class CudaInDataset(Check):
    rules = (
        Rule(
            "TDL301",
            "cuda-in-dataset",
            "a Dataset or collate function moves samples to the device, in workers that cannot use it",
            fix="unsafe",
        ),
    )
    triggers = (("__getitem__", "__getitems__", "__iter__", "collate_fn", "worker_init_fn"),)
    patterns = (r"\.\s*(?:to|cuda)\s*\(|device\s*=|collate_fn|worker_init_fn",)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if not self._is_dataset(node) or self._no_workers(node.name.value):
            return
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value in _METHODS:
                self._search(statement, f"`{node.name.value}.{statement.name.value}`")

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != DATA_LOADER or has_unpacking(node):
            return
        workers = option(node, "num_workers")
        if workers is None or is_literal(workers, "0") or self._spawns():
            return
        for name in ("collate_fn", "worker_init_fn"):
            arg = option(node, name)
            function = self._function(arg.value) if arg is not None else None
            if function is not None:
                self._search(function, f"`{name}`")

    def _function(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """The function, in the unit that is walked, that an argument names or is."""
        if isinstance(node, cst.Lambda):
            return node
        for other in self.unit.below(self.unit.module, cst.FunctionDef):
            if other.name.value == dotted(node):
                return other
        made = dotted(node.func) if isinstance(node, cst.Call) else self._class_of(node)
        for unit in self.file.units:
            last = unit.module.body[-1] if unit.name and unit.name in (dotted(node), made) else None
            found: cst.CSTNode | None = last if isinstance(last, cst.FunctionDef) else None
            if isinstance(last, cst.ClassDef):
                methods = [part for part in last.body.body if isinstance(part, cst.FunctionDef)]
                found = next((method for method in methods if method.name.value == "__call__"), None)
            if found is not None:
                outer, self.unit = self.unit, unit
                self._search(found, f"`{unit.name}`")
                self.unit = outer
        return None

    def _class_of(self, node: cst.BaseExpression) -> str:
        """The class that a name is assigned an instance of, in the unit that is walked."""
        assigned = [
            other.value
            for other in self.unit.below(self.unit.module, cst.Assign)
            if isinstance(node, cst.Name) and dotted(other.targets[0].target) == node.value
        ]
        value = assigned[0] if len(assigned) == 1 else None
        return dotted(value.func) if isinstance(value, cst.Call) else ""

    def _is_dataset(self, node: cst.ClassDef) -> bool:
        return any(
            self.name(base.value) in _DATASETS or re.fullmatch(r"(?:\w+\.)*\w*Dataset", dotted(base.value) or "-")
            for base in node.bases
        )

    def _no_workers(self, dataset: str) -> bool:
        """Whether the file shows how its loaders run, and that they start no worker, or spawn them."""
        if self._spawns():
            return True
        calls = list(self._loaders())
        if not calls:
            return False
        workers = [option(call, "num_workers") for call in calls]
        return all(arg is None or is_literal(arg, "0") for arg in workers) and not any(map(has_unpacking, calls))

    def _loaders(self) -> Iterator[cst.Call]:
        for unit in self.file.units:
            if "DataLoader" in unit.words:
                _ = unit.module
                for node in unit.nodes:
                    if isinstance(node, cst.Call) and self.file.names.qualified(node.func, unit) == DATA_LOADER:
                        yield node

    def _spawns(self) -> bool:
        words = self.file.words
        starts = not words.isdisjoint(("set_start_method", "get_context", "multiprocessing_context"))
        return starts and _SPAWN.search(self.file.source.text) is not None

    def _search(self, function: cst.CSTNode, where: str) -> None:
        for node in self.unit.below(function):
            if not isinstance(node, cst.Call):
                continue
            move = move_of(node)
            if move is not None and not move.to_cpu and not self._on_host(move.device):
                self._report(node, where, self._fix(node, move.receiver, move.dtype is not None))
            elif self.name(node.func) in FACTORIES:
                device = argument(node, "device")
                if device is not None and (string_value(device.value) or "").startswith(("cuda", "xpu", "mps")):
                    self._report(node, where, None)

    def _on_host(self, device: str) -> bool:
        return "cpu" in device or (device.endswith(".device") and not device.startswith("self."))

    def _report(self, node: cst.Call, where: str, fix: Fix | None) -> None:
        self.report(
            node,
            "TDL301",
            f"{where} works on the device, in worker processes that are forked: CUDA cannot be initialised there, and "
            "without workers it is one small copy a sample; return CPU tensors, and move the batch: "
            "devlint.runtime.DeviceLoader(loader, device)",
            fix=fix,
        )

    def _fix(self, node: cst.Call, receiver: cst.BaseExpression, with_dtype: bool) -> Fix | None:
        if with_dtype or getattr(receiver, "lpar", None) or len(node.args) > 1:
            return None
        start, end = self.unit.offsets(receiver)[1], self.unit.offsets(node)[1]
        if "#" in self.file.source.text[start:end]:
            return None
        return Fix("Leave the sample on the CPU", (Edit(start, end, ""),), "unsafe")
