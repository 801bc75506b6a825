"""Training by several processes, and how the processes divide the data among them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.batch_loops import BatchLoop, BatchLoops, LoaderCall
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.units import Unit, UnitTooDeep

if TYPE_CHECKING:
    from devlint.checks.base import File

WRAPS = frozenset(
    (
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "apex.parallel.DistributedDataParallel",
    )
)
"""What makes each process train a replica, or a shard of one, on data of its own."""
_GROUP = "torch.distributed.init_process_group"
_AVERAGES = frozenset(("all_reduce", "all_reduce_coalesced", "average_gradients"))
_DIVIDED = re.compile(
    r"rank|world|shard|replica|part\b|partition|split_dataset|islice|proc(?:ess)?_|num_processes|gpu_id|local_id", re.I
)
# Data that is divided by hand, random numbers that differ by rank, processes that work on one batch together.
_DIVIDED_HERE = re.compile(
    r"rank\s*::|\bshard\w*\(|\.shard\(|partition(?!ed)|split_dataset|split_by|seed\w*\([^()\n]*rank|seed\s*\+=?\s*[\w.]*rank|"
    r"rpc|device_?mesh|pipeline_?parallel|tensor_?parallel|world_size\s*=\s*1\b",
    re.I,
)
_HOPS = 3


class ProcessGroups:
    """What one file shows of the processes that run it."""

    def __init__(self, file: File, loops: BatchLoops) -> None:
        self._file = file
        self._loops = loops

    def framework(self) -> bool:
        """Whether a framework may hand out the data."""
        roots = {target.partition(".")[0] for targets in self._file.names.aliases.values() for target in targets}
        return not roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"} | {"ray"})

    def divides(self) -> bool:
        """Whether the file speaks of dividing the data, or of processes that share it on purpose."""
        return _DIVIDED_HERE.search(self._file.source.text) is not None

    def wrapping(self, loop: BatchLoop, loader: LoaderCall) -> tuple[cst.Call, Unit] | None:
        """The call that makes replicas, in what runs a loop or makes its loader, or in what calls that or is called by it."""
        near = self._near([(loop.node, loop.unit), (loader.node, loader.unit)])
        averages = not self._file.words.isdisjoint(_AVERAGES)
        for unit in self._file.units:
            if unit.words.isdisjoint(self._file.names.words_for(WRAPS | {_GROUP})):
                continue
            try:
                _ = unit.module
            except UnitTooDeep:
                continue
            for node in unit.nodes:
                if isinstance(node, cst.Call):
                    name = self._file.names.qualified(node.func, unit)
                    if (name in WRAPS or (averages and name == _GROUP)) and self._scope(node, unit) in near:
                        return node, unit
        return None

    def _scope(self, node: cst.CSTNode, unit: Unit) -> cst.CSTNode | None:
        """The class or the function that a node stands in; None at the top level."""
        return unit.enclosing(node, cst.ClassDef) or unit.enclosing(node, cst.FunctionDef)

    def _near(self, places: list[tuple[cst.CSTNode, Unit]]) -> set[cst.CSTNode | None]:
        """The scopes of these places, of their callers, and of what all of those call; the top level is near to all."""
        near: set[cst.CSTNode | None] = {None}
        for _ in range(_HOPS):
            callers: list[tuple[cst.CSTNode, Unit]] = []
            for node, unit in places:
                scope = self._scope(node, unit)
                if scope in near or scope is None:
                    continue
                near.add(scope)
                callers += self._loops.calls(scope, unit)
                for inner in unit.below(scope):
                    called = self._loops.function(inner, unit) if isinstance(inner, cst.Call) else None
                    if called is not None:
                        near.add(self._scope(called[1], called[0]) or called[1])
            places = callers
        return near

    def is_map_style(self, node: cst.BaseExpression, unit: Unit) -> bool:
        """Whether a dataset surely has an index for a sampler to draw, so that DistributedSampler can divide it."""
        origins = self._loops.origins.of(node, unit)
        return bool(origins) and all(
            origin is not None and isinstance(origin.node, cst.Call) and self._indexed(origin.node, origin.unit)
            for origin in origins
        )

    def _indexed(self, call: cst.Call, unit: Unit) -> bool:
        name = self._file.names.qualified(call.func, unit)
        if name.startswith("torchvision.datasets.") or name in (
            "torch.utils.data.TensorDataset",
            "torch.utils.data.Subset",
        ):
            return True
        found = self._file.placement.world.class_named(call.func.value) if isinstance(call.func, cst.Name) else None
        if found is None:
            return False
        return any(
            isinstance(item, cst.FunctionDef) and item.name.value == "__getitem__" for item in found[1].body.body
        )

    def is_divided(self, node: cst.BaseExpression, unit: Unit) -> bool:
        """Whether what a dataset is made from, or its class in this file, knows the rank, or chooses by a variable."""
        return any(_DIVIDED.search(text) for text in self.made_from(node, unit))

    def made_from(self, node: cst.BaseExpression, unit: Unit) -> Iterator[str]:
        """The code of the expressions that a value is made from, through names, and of its class."""
        pending, seen = [(node, unit)], set[cst.CSTNode]()
        while pending and len(seen) < 40:
            current, at = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            yield at.module.code_for_node(current)
            for inner in at.below(current):
                if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Name):
                    found = self._file.placement.world.class_named(inner.func.value)
                    if found is not None:
                        yield found[0].text
                if isinstance(inner, cst.Index) and not isinstance(inner.value, (cst.SimpleString, cst.Integer)):
                    # The variable may be this process's part.
                    yield "part"
                if isinstance(inner, (cst.Name, cst.Attribute)) or inner is current:
                    assert isinstance(inner, cst.BaseExpression)
                    origins = self._loops.origins.of(inner, at)
                    pending += [(o.node, o.unit) for o in origins if o is not None and o.node is not inner]
