"""What the samplers of a file's loaders do: whether they divide the samples among processes, and shuffle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devlint.edits import argument, has_unpacking
from devlint.lazycst import cst
from devlint.semantics.batch_loops import LoaderCall
from devlint.semantics.data_loader import is_literal, is_set, option
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.checks.base import File

_DISTRIBUTED = frozenset(("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"))
_PLAIN = frozenset(("torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"))
_IMPORT = re.compile(r"^[ \t]*(?:from\s+\S+\s+)?import\s+(?:\([^)]*\)|[^\n]*)", re.M)


class Samplers:
    """The samplers that one file makes and hands to its loaders."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._origins = Origins(file)

    def is_plain(self, loader: LoaderCall) -> bool:
        """Whether a loader surely has no sampler that divides the samples."""
        if has_unpacking(loader.node) or is_set(option(loader.node, "batch_sampler")):
            return False
        sampler = option(loader.node, "sampler")
        if sampler is None or is_literal(sampler, "None"):
            return True
        makers = self._origins.makers(sampler.value, loader.unit)
        return bool(makers) and makers <= _PLAIN

    def shuffling(self, loader: LoaderCall) -> Iterator[tuple[cst.Call, Unit]]:
        """The DistributedSampler calls that a loader may take its samples from, and that shuffle."""
        given = option(loader.node, "sampler") or option(loader.node, "batch_sampler")
        pending = [(given.value, loader.unit)] if given is not None else []
        while pending:
            for origin in self._origins.of(*pending.pop()):
                if origin is None or not isinstance(origin.node, cst.Call):
                    continue
                if self._file.names.qualified(origin.node.func, origin.unit) == "torch.utils.data.BatchSampler":
                    inner = argument(origin.node, "sampler", 0)
                    pending += [(inner.value, origin.unit)] if inner is not None else []
                elif self._names_sampler(origin.node, origin.unit) and not has_unpacking(origin.node):
                    shuffle = argument(origin.node, "shuffle", 3)
                    if (shuffle is None or is_literal(shuffle, "True")) and argument(origin.node, "seed", 4) is None:
                        yield origin.node, origin.unit

    def hands_out_parts(self, loader: LoaderCall) -> bool:
        """Whether the file divides samples somewhere, so that this loader may be for one process alone.

        A DistributedSampler that was made for the same samples and is handed to nobody does not count.
        """
        mentioned = _IMPORT.sub("", self._file.source.text)
        if not any(re.search(rf"{word}\b", mentioned) for word in self._file.names.words_for(_DISTRIBUTED)):
            return False
        function = loader.unit.enclosing(loader.node, cst.FunctionDef)
        below = loader.unit.below(function if function is not None else loader.unit.module)
        made = [node for node in below if isinstance(node, cst.Call) and self._names_sampler(node, loader.unit)]
        handed = {dotted(node.value) for node in below if isinstance(node, cst.Arg)}
        names = {dotted(t.target) for node in made for t in self.targets(node, loader.unit)}
        calls = re.findall(r"DistributedSampler\(", mentioned)
        return not names or len(calls) != len(made) or not names.isdisjoint(handed) or "if " in self._text(function)

    def targets(self, node: cst.CSTNode, unit: Unit) -> Iterator[cst.AssignTarget]:
        """What a call is assigned to."""
        above = unit.parents.get(node)
        if isinstance(above, cst.Assign):
            yield from above.targets

    def _names_sampler(self, node: cst.Call, unit: Unit) -> bool:
        return self._file.names.qualified(node.func, unit) in _DISTRIBUTED

    def _text(self, function: cst.FunctionDef | None) -> str:
        return self._file.source.text if function is None else cst.Module(body=[]).code_for_node(function)
