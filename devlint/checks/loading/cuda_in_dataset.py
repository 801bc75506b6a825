"""TDL301 cuda-in-dataset: accelerator work where forked workers may run it."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument, has_unpacking
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, move_of, string_value
from devlint.semantics.data_loader import is_literal, option
from devlint.semantics.flow.api import MODULE_NAME
from devlint.semantics.tree import dotted
from devlint.semantics.workers import WorkerCode, Workers
from devlint.units import Unit

_DATASETS = frozenset(
    f"torch.utils.data.{name}" for name in ("Dataset", "IterableDataset", "MapDataPipe", "IterDataPipe")
)
_METHODS = frozenset(("__getitem__", "__getitems__", "__iter__"))
_ADVICE = "return CPU tensors, and move the batch: devlint.runtime.DeviceLoader(loader, device)"


class CudaInDataset(Check):
    rules = (
        Rule(
            "TDL301",
            "cuda-in-dataset",
            "a Dataset, transform or collate function works on the device, in workers that cannot use it",
            fix="unsafe",
        ),
    )
    triggers = (("__getitem__", "__getitems__", "__iter__", "collate_fn", "worker_init_fn", "transform", "Compose"),)
    patterns = (r"\.\s*(?:to|cuda)\s*\(|device\s*=|map_location|collate_fn|worker_init_fn|transform\s*=|Compose",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._workers = Workers(file)
        self._searched: set[cst.CSTNode] = set()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if not self._is_dataset(node):
            return
        name = node.name.value
        methods = [statement for statement in node.body.body if isinstance(statement, cst.FunctionDef)]
        if not self._no_workers():
            for method in methods:
                if method.name.value in _METHODS:
                    self._search(WorkerCode(self.unit, method, f"`{name}.{method.name.value}`"))
        for method in methods:
            if method.name.value == "__init__" and not self._workers.spawned:
                self._kept(node, method)

    def finish(self) -> None:
        """Look at what the loaders of the file are given."""
        if self._workers.spawned:
            return
        started = [(unit, call) for unit, call in self._workers.loaders if self._workers.starts(call)]
        for unit, call in started:
            for code in self._workers.functions(unit, call):
                self._search(code)
        for code in self._workers.transforms() if started else ():
            self._search(code)

    def _is_dataset(self, node: cst.ClassDef) -> bool:
        return any(
            self.name(base.value) in _DATASETS or re.fullmatch(r"(?:\w+\.)*\w*Dataset", dotted(base.value) or "-")
            for base in node.bases
        )

    def _no_workers(self) -> bool:
        """Whether the file shows how its loaders run, and that they start no worker, or spawn them."""
        if self._workers.spawned:
            return True
        calls = [call for _, call in self._workers.loaders]
        if not calls:
            return False
        workers = [option(call, "num_workers") for call in calls]
        return all(arg is None or is_literal(arg, "0") for arg in workers) and not any(map(has_unpacking, calls))

    def _search(self, code: WorkerCode) -> None:
        if code.node in self._searched:
            return
        self._searched.add(code.node)
        for node in code.unit.below(code.node, cst.Call):
            move = move_of(node)
            if move is not None and not move.to_cpu and not self._on_host(move.device):
                self._report(code, node, self._fix(code.unit, node, move.receiver, move.dtype is not None))
            elif self._makes(code.unit, node):
                self._report(code, node, None)

    def _makes(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call makes, or loads, tensors on an accelerator that it names."""
        name = self.file.names.qualified(call.func, unit)
        place = argument(call, "device") if name in FACTORIES else None
        if name == "torch.load":
            place = argument(call, "map_location", 1)
        value = place.value if place is not None else None
        if isinstance(value, cst.Call) and value.args and self.file.names.qualified(value.func, unit) == "torch.device":
            value = value.args[0].value
        return (string_value(value) or "").startswith(("cuda", "xpu", "mps"))

    def _kept(self, owner: cst.ClassDef, init: cst.FunctionDef) -> None:
        """Tensors on a device that a dataset keeps, whose loader starts workers or pins what they make."""
        for unit, loader in self._workers.holds(owner.name.value):
            pinned = is_literal(option(loader, "pin_memory"), "True")
            workers = option(loader, "num_workers")
            if not pinned and not (
                workers is not None and isinstance(workers.value, cst.Integer) and self._workers.starts(loader)
            ):
                continue
            held: set[str] = set()
            for statement in self.unit.below(init, cst.Assign):
                calls = self.unit.below(statement.value, cst.Call)
                moves = [call for call in calls if self._puts_on_device(call)]
                if any((move := move_of(call)) is not None and move.to_cpu for call in calls):
                    continue
                targets = [
                    target for each in statement.targets for target in self.unit.below(each, cst.Name, cst.Attribute)
                ]
                if not moves and not any(name.value in held for name in self.unit.below(statement.value, cst.Name)):
                    continue
                held |= {dotted(target) for target in targets}
                if any(self._is_given(owner, dotted(target)) for target in targets):
                    why = "only tensors on the CPU can be pinned" if pinned else "its workers would share them by CUDA"
                    self.report(
                        statement,
                        "TDL301",
                        f"`{owner.name.value}` keeps tensors on the device, and its loader, at line {unit.span(loader).line}, hands "
                        f"them on: {why}; {_ADVICE}",
                    )
                    return

    def _puts_on_device(self, call: cst.Call) -> bool:
        move = move_of(call)
        moved = move is not None and not move.to_cpu and not MODULE_NAME.search(dotted(move.receiver))
        return self._makes(self.unit, call) or (moved and not self._on_host(move.device if move is not None else ""))

    def _is_given(self, owner: cst.ClassDef, name: str) -> bool:
        """Whether an attribute is what the samples are made of."""
        return name.startswith("self.") and any(
            dotted(inner) == name
            for method in owner.body.body
            if isinstance(method, cst.FunctionDef) and method.name.value in _METHODS
            for inner in self.unit.below(method, cst.Attribute)
        )

    def _on_host(self, device: str) -> bool:
        return "cpu" in device or (device.endswith(".device") and not device.startswith("self."))

    def _report(self, code: WorkerCode, node: cst.Call, fix: Fix | None) -> None:
        self.report(
            node,
            "TDL301",
            f"{code.where} works on the device, in worker processes that are forked: CUDA cannot be initialised there, and "
            f"without workers it is one small copy a sample; {_ADVICE}",
            fix=fix,
            unit=code.unit,
        )

    def _fix(self, unit: Unit, node: cst.Call, receiver: cst.BaseExpression, with_dtype: bool) -> Fix | None:
        if with_dtype or getattr(receiver, "lpar", None) or len(node.args) > 1:
            return None
        start, end = unit.offsets(receiver)[1], unit.offsets(node)[1]
        if "#" in self.file.source.text[start:end]:
            return None
        return Fix("Leave the sample on the CPU", (Edit(start, end, ""),), "unsafe")
