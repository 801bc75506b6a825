"""TDL308 missing-distributed-sampler: every process reads everything, or every epoch has the same order."""

from __future__ import annotations

import re

from devlint.checks.base import Check, File, Rule
from devlint.lazycst import cst
from devlint.semantics.batch_loops import BatchLoop, BatchLoops, LoaderCall, iterated
from devlint.semantics.data_loader import is_literal, is_set, option
from devlint.semantics.process_groups import ProcessGroups
from devlint.semantics.samplers import Samplers
from devlint.semantics.training import code_below
from devlint.semantics.tree import dotted
from devlint.units import Unit

_SEVERAL = re.compile(
    r"DistributedDataParallel|FullyShardedDataParallel|fully_shard|DistributedSampler|init_process_group"
)
_SETS_EPOCH = re.compile(r"^[^#\n]*(?:\bset_epoch\b|sampler\w*\.epoch\s*=)", re.M)
_EVALUATES = re.compile(r"val|test|eval|dev(?!ice)|infer|predict|no_grad|inference_mode", re.I)
_STEPS = re.compile(r"train|step|update|optimi[sz]e|fit", re.I)
_HARMLESS = frozenset("len print isinstance str type id BatchSampler DataLoader next".split())


class MissingDistributedSampler(Check):
    rules = (
        Rule(
            "TDL308",
            "missing-distributed-sampler",
            "processes that train together on the same samples, or a DistributedSampler without `set_epoch`",
        ),
    )
    triggers = (("DataLoader", "DistributedSampler"),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._loops = BatchLoops(file)
        self._groups = ProcessGroups(file, self._loops)
        self._samplers = Samplers(file)
        self._told: set[cst.CSTNode] = set()

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only where the file speaks of several processes."""
        return _SEVERAL.search(unit.source.text) is not None and super().wants(unit, names)  # type: ignore[arg-type]

    def finish(self) -> None:
        """Judge the loaders of all training loops of the file."""
        if self._groups.framework():
            return
        for loop in self._loops.loops:
            if self._trains(loop):
                self._judge_sampling(loop)
                if _SETS_EPOCH.search(self.file.source.text) is None:
                    self._judge_epochs(loop)

    def _trains(self, loop: BatchLoop) -> bool:
        """Whether a loop surely trains; or steps, by the names of what it calls, and nothing speaks of evaluation."""
        if self._loops.trains(loop):
            return True
        above = loop.unit.enclosing(loop.node, cst.With)
        function = loop.unit.enclosing(loop.node, cst.FunctionDef)
        said = [loop.unit.module.code_for_node(loop.node.iter), function.name.value if function is not None else ""]
        said += [loop.unit.module.code_for_node(item.item) for item in (above.items if above is not None else ())]
        said += [item.unit.module.code_for_node(item.node) for item in loop.loaders]
        if any(_EVALUATES.search(text) for text in said):
            return False
        names = [dotted(n.func) for n in code_below(loop.unit, loop.node.body) if isinstance(n, cst.Call) and n.args]
        return any(_STEPS.search(n) and not _EVALUATES.search(n) for n in names)

    def _judge_sampling(self, loop: BatchLoop) -> None:
        """Report loaders that give each process all samples."""
        if self._groups.divides() or not all(self._samplers.is_plain(loader) for loader in loop.loaders):
            return
        for loader in loop.loaders:
            dataset = option(loader.node, "dataset")
            if dataset is None or loader.node in self._told:
                continue
            indexed = is_literal(option(loader.node, "shuffle"), "True") or is_set(option(loader.node, "sampler"))
            if not indexed and (len(loop.loaders) > 1 or not self._groups.is_map_style(dataset.value, loader.unit)):
                continue
            if self._groups.is_divided(dataset.value, loader.unit) or self._samplers.hands_out_parts(loader):
                continue
            wrapped = self._groups.wrapping(loop, loader)
            if wrapped is None:
                continue
            self._told.add(loader.node)
            code = loader.unit.code(dataset.value)
            line = wrapped[1].span(wrapped[0]).line
            self.report(
                loader.node,
                "TDL308",
                f"every process reads all of `{code}`: the processes that train together since line {line} do the same work, instead "
                f"of a part of it each; give `sampler=DistributedSampler({code})` in place of `shuffle`, and call its `set_epoch(epoch)` "
                "in each epoch",
                evidence=self._evidence(loader.unit, (*wrapped, "the model is wrapped for several processes here")),
                unit=loader.unit,
            )

    def _judge_epochs(self, loop: BatchLoop) -> None:
        """Report samplers that shuffle, in a loop over epochs that never tells them the epoch."""
        for loader in loop.loaders:
            if len(loop.loaders) > 1 and _EVALUATES.search(loader.unit.module.code_for_node(loader.node)):
                # One loop over several loaders, by phase.
                continue
            for sampler, unit in self._samplers.shuffling(loader):
                repeated = self._loops.repeated(loop) if sampler not in self._told else None
                if repeated is None or self._escapes(loader, sampler, *repeated):
                    continue
                self._told.add(sampler)
                line = repeated[1].span(repeated[0]).line
                self.report(
                    sampler,
                    "TDL308",
                    f"this sampler shuffles by its epoch, and the loop over epochs at line {line} never tells it: every epoch has the "
                    "same order; call its `set_epoch(epoch)` at the head of each epoch, or use devlint.runtime.fit, which does",
                    evidence=self._evidence(unit, (*repeated, "nothing in here calls `set_epoch`")),
                    unit=unit,
                )

    def _escapes(self, loader: LoaderCall, sampler: cst.Call, epochs: cst.For | cst.While, unit: Unit) -> bool:
        """Whether code that is not seen here gets hold of the sampler, or of the loader in each epoch."""
        names = {dotted(target.target) for u in self.file.units for target in self._samplers.targets(sampler, u)}
        for other in self.file.units:
            if other.words.isdisjoint({name.rpartition(".")[2] for name in names}):
                continue
            for node in other.below(other.module):
                if isinstance(node, cst.Call) and any(dotted(arg.value) in names for arg in node.args):
                    if self._unknown(node, other):
                        return True
        return any(
            isinstance(node, cst.Call)
            and next(iterated(node)) is node
            and self._unknown(node, unit)
            and any(loader in self._loops.loaders(arg.value, unit) for arg in node.args)
            for node in code_below(unit, epochs)
        )

    def _unknown(self, call: cst.Call, unit: Unit) -> bool:
        last = dotted(call.func).rpartition(".")[2]
        return last not in _HARMLESS and self._loops.function(call, unit) is None and not self._class(last)

    def _class(self, name: str) -> bool:
        return self.file.placement.world.class_named(name) is not None

    def _evidence(self, unit: Unit, step: tuple[cst.CSTNode, Unit, str]) -> list[tuple[cst.CSTNode, str]]:
        return [(step[0], step[2])] if step[1] is unit else []
