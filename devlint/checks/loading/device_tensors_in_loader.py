"""TDL304 device-tensors-in-pinned-loader: what is on the device already can be neither pinned nor sent to a worker."""

from __future__ import annotations

from devlint.checks.base import Rule
from devlint.checks.meeting import MeetCheck, describe, step_evidence
from devlint.edits import remove_argument
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.data_loader import is_literal, option
from devlint.semantics.flow.meets import Loaded


class DeviceTensorsInLoader(MeetCheck):
    rules = (
        Rule(
            "TDL304",
            "device-tensors-in-pinned-loader",
            "a loader pins, or hands to workers, tensors that are on the device already",
            fix="unsafe",
        ),
    )
    triggers = (("DataLoader",), ("pin_memory", "num_workers"), ("to", "cuda", "device"))

    def finish(self) -> None:
        """Judge each loader of the units that were walked, and of what they call."""
        for loaded in self.file.placement.world.notes.loaders:
            self._judge(loaded)

    def _judge(self, loaded: Loaded) -> None:
        node, unit = loaded.node, loaded.unit
        pin, workers = option(node, "pin_memory"), option(node, "num_workers")
        pinned = is_literal(pin, "True")
        if not pinned and not (
            workers is not None and isinstance(workers.value, cst.Integer) and workers.value.value != "0"
        ):
            return
        where = describe(loaded.value.place)
        if pinned:
            why = f"the tensors of this loader are {where}, and only those on the CPU can be pinned (`cannot pin`): drop `pin_memory=True`"
        else:
            why = (
                f"the tensors of this loader are {where}, and its workers would share them by CUDA: drop `num_workers`"
            )
        edit = remove_argument(unit, node, pin) if pinned and pin is not None and pin.keyword else None
        self.accuse(
            "TDL304",
            node,
            unit,
            f"{why}, or keep the data on the CPU and move each batch: devlint.runtime.DeviceLoader; for data that fits the device, "
            "devlint.runtime.PreloadedDataset",
            Fix("Drop `pin_memory=True`", (edit,), "unsafe") if edit else None,
            [step_evidence(step, "they are put there here") for step in loaded.value.steps[-1:]],
        )
