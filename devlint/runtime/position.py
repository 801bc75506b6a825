"""Where training is within an epoch's data, so that a resumed run reads the same batches as one that went on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from devlint.runtime.seeding import random_state, set_random_state


class Position:
    """The batches of an epoch that were read, and the random state that their order began with.

    The order is drawn when iteration begins. To come back to a place within it, the state of that moment is restored,
    as many batches are read and dropped, and then the random state of the checkpoint is put back.
    """

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.loader = loader
        self.device = device
        self.batch = 0
        self._start: dict[str, Any] = {}

    def begin(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, from the first."""
        set_epoch(self.loader, epoch)
        self.batch = 0
        self._start = self._state()
        return iter(self.loader)

    def resume(self, epoch: int, state: dict[str, Any]) -> Iterator[Any]:
        """The rest of the batches of an epoch, after the state's.

        Raises:
            ValueError: if the loader gives fewer batches than were read then.
        """
        after = self._state()
        self._restore(state["start"])
        batches = self.begin(epoch)
        for count in range(state["batch"]):
            try:
                next(batches)
            except StopIteration:
                raise ValueError(
                    f"fit: the checkpoint was made after {state['batch']} batches of an epoch, and the loader gives "
                    f"{count}: the data set or the batch size has changed"
                ) from None
        self.batch = state["batch"]
        set_random_state(after["random"], self.device)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Batches read and the state at the start of the epoch."""
        return {"batch": self.batch, "start": self._start}

    def load_generators(self, state: dict[str, Any]) -> None:
        """Put back the states of the loader's own generators."""
        for generator, saved in zip(_generators(self.loader), state["generators"], strict=False):
            generator.set_state(saved)

    def generators(self) -> list[torch.Tensor]:
        """The states of the loader's own generators."""
        return [generator.get_state() for generator in _generators(self.loader)]

    def _state(self) -> dict[str, Any]:
        return {"random": random_state(self.device), "generators": self.generators()}

    def _restore(self, state: dict[str, Any]) -> None:
        set_random_state(state["random"], self.device)
        self.load_generators(state)

    def start_persistent_workers(self) -> None:
        """For an epoch after the first: in the run that went on they were there, and drew their seed before."""
        inner = self.loader
        while not isinstance(inner, torch.utils.data.DataLoader) and hasattr(inner, "loader"):
            inner = inner.loader
        if getattr(inner, "persistent_workers", False) and getattr(inner, "num_workers", 0):
            iter(inner)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the loader, or else its sampler, which epoch it is: DistributedSampler shuffles by it."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    for candidate in (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
        setter = getattr(candidate, "set_epoch", None)
        if setter is not None:
            setter(epoch)
            return


def length(loader: Any) -> int | None:
    """How many batches an epoch has, if the loader knows exactly."""
    inner = loader
    while not isinstance(inner, torch.utils.data.DataLoader) and hasattr(inner, "loader"):
        inner = inner.loader
    if isinstance(getattr(inner, "dataset", None), torch.utils.data.IterableDataset):
        return None  # its length is an estimate, and wrong with several workers
    try:
        return len(loader)
    except TypeError:
        return None


def _generators(loader: Any) -> list[torch.Generator]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    found: list[torch.Generator] = []
    for owner in (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not other for other in found):
            found.append(generator)
    return found
