"""TDL306 iterable-dataset-duplicates: every worker yields every sample."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.edits import has_unpacking
from devlint.lazycst import cst
from devlint.semantics.data_loader import DATA_LOADER, is_set, option
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

_BASES = frozenset(("torch.utils.data.IterableDataset", "torch.utils.data.dataset.IterableDataset"))
# Whatever speaks of workers, ranks or shards divides the samples, or knows that somebody does.
_DIVIDES = re.compile(
    r"get_worker_info|worker|shard|rank|world_size|islice|split_by|queue|random|shuffle|while True", re.I
)


class IterableDatasetDuplicates(Check):
    rules = (
        Rule(
            "TDL306",
            "iterable-dataset-duplicates",
            "an IterableDataset that does not divide its samples is read by several workers",
        ),
    )
    triggers = (("DataLoader",), ("num_workers",))

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._origins = Origins(file)

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only where the file defines such a dataset."""
        return "IterableDataset" in unit.source.text and super().wants(unit, names)  # type: ignore[arg-type]

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != DATA_LOADER or has_unpacking(node) or is_set(option(node, "worker_init_fn")):
            return
        workers, dataset = option(node, "num_workers"), option(node, "dataset")
        if (
            dataset is None
            or workers is None
            or not isinstance(workers.value, cst.Integer)
            or workers.value.value in ("0", "1")
        ):
            return
        origins = self._origins.of(dataset.value, self.unit)
        if len(origins) != 1 or origins[0] is None or not isinstance(origins[0].node, cst.Call):
            return
        found = self.file.placement.world.class_named(dotted(origins[0].node.func))
        if found is None:
            return
        unit, owner = found
        if (
            not any(self.file.names.qualified(base.value, unit) in _BASES for base in owner.bases)
            or len(owner.bases) != 1
        ):
            return
        methods = [
            item for item in owner.body.body if isinstance(item, cst.FunctionDef) and item.name.value == "__iter__"
        ]
        if len(methods) != 1 or _DIVIDES.search(unit.text):
            return
        count = workers.value.value
        self.report(
            node,
            "TDL306",
            f"each of the {count} workers runs the whole of `{owner.name.value}.__iter__`: every sample comes {count} times; divide the "
            "samples by `torch.utils.data.get_worker_info()`",
            evidence=[(methods[0].name, "nothing here tells the workers apart")] if unit is self.unit else [],
        )
