"""TDL309 dataloader-default-workers and TDL310 dataloader-without-pin-memory: advice on loaders that feed an accelerator."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, File, Rule
from devlint.edits import add_argument, has_unpacking, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.batch_loops import BatchLoop, BatchLoops, LoaderCall
from devlint.semantics.batch_moves import BatchMoves
from devlint.semantics.cpu_fallback import CpuFallback
from devlint.semantics.data_loader import is_literal, is_set, option
from devlint.semantics.flow.api import FRAMEWORK_ROOTS
from devlint.semantics.process_groups import ProcessGroups

_ON_DEVICE = re.compile(r"\.cuda\(|\.to\(|device\s*=")
# What an index suffices for: workers cost more than they save.
_IN_MEMORY = re.compile(
    r"(?:^|\n)(?:\w+\.)*TensorDataset\(|def __getitem__\([^)]*\)[^:\n]*:\s*return\s+[^()\n]+$", re.M
)


class LoaderAdvice(Check):
    rules = (
        Rule(
            "TDL309",
            "dataloader-default-workers",
            "advice: a loader that feeds an accelerator reads in the training process itself",
            default=False,
        ),
        Rule(
            "TDL310",
            "dataloader-without-pin-memory",
            "advice: a loader that feeds an accelerator gives pageable batches",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("DataLoader",),)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._loops = BatchLoops(file)
        self._moves = BatchMoves(self._loops)
        self._groups = ProcessGroups(file, self._loops)
        self._fallback = CpuFallback(file)
        self._roots = {target.partition(".")[0] for targets in file.names.aliases.values() for target in targets}

    def finish(self) -> None:
        """Judge the loaders of the loops that move their batches."""
        if not self._roots.isdisjoint(FRAMEWORK_ROOTS - {"torch_geometric", "dgl"}):
            return
        told: set[cst.CSTNode] = set()
        for loop in self._loops.loops:
            for loader in loop.loaders if self._moves.accelerated(loop) else ():
                if loader.node not in told and not has_unpacking(loader.node):
                    told.add(loader.node)
                    self._judge(loader, loop)

    def _judge(self, loader: LoaderCall, loop: BatchLoop) -> None:
        dataset = option(loader.node, "dataset")
        made = list(self._groups.made_from(dataset.value, loader.unit)) if dataset is not None else []
        collate = option(loader.node, "collate_fn")
        given = loader.unit.module.code_for_node(collate.value) if collate is not None else ""
        made += self._functions(given)
        if "device" in given or any(_ON_DEVICE.search(text) for text in made):
            # What is on a device already can be neither read by workers nor pinned.
            return
        line = loop.unit.span(loop.node).line
        workers, pinned = option(loader.node, "num_workers"), option(loader.node, "pin_memory")
        evidence = [(loop.node, "each batch is moved in this loop")] if loop.unit is loader.unit else []
        if (workers is None or is_literal(workers, "0")) and not any(map(_IN_MEMORY.search, made)):
            self.report(
                loader.node,
                "TDL309",
                f"advice: without `num_workers` the loop at line {line} waits while each batch is read and collated, and the accelerator with "
                "it; try `num_workers=4` where reading takes long, or devlint.runtime.make_loader, which chooses",
                evidence=evidence,
                unit=loader.unit,
            )
        # A graph of DGL has nothing that DataLoader could pin.
        if not is_set(pinned) and "dgl" not in self.file.source.text.lower() and "TDL310" in self.file.settings.enabled:
            asks = self._fallback.found() is not None and "nccl" not in self.file.source.text
            new, needs = self._fallback.whether_to_pin(loader.node, loader.unit) if asks else ("True", ())
            self.report(
                loader.node,
                "TDL310",
                f"advice: the loop at line {line} moves batches from pageable memory, which is copied once more and cannot overlap; give "
                f"`pin_memory={new}` and move with `non_blocking=True`, or use devlint.runtime.make_loader",
                fix=self._fix(loader, pinned, new, needs),
                evidence=evidence,
                unit=loader.unit,
            )

    def _functions(self, code: str) -> Iterator[str]:
        """The code of the functions and the classes of the file that an expression names."""
        named = set(re.findall(r"\w+", code))
        for unit in self.file.units:
            for node in unit.below(unit.module) if not named.isdisjoint(unit.words) else ():
                if isinstance(node, (cst.FunctionDef, cst.ClassDef)) and node.name.value in named:
                    yield unit.module.code_for_node(node)

    def _fix(self, loader: LoaderCall, pinned: cst.Arg | None, new: str, needs: tuple[str, ...]) -> Fix | None:
        unit = loader.unit
        edit = (
            add_argument(unit, loader.node, f"pin_memory={new}") if pinned is None else replace(unit, pinned.value, new)
        )
        return Fix(f"Give `pin_memory={new}`", (edit,), "unsafe", needs) if edit else None
