"""The ways to get samples to a device that the bench compares. Each is a function: its source is its complexity.

``way(dataset, device, batch_size, workers)`` gives an iterable of ``(inputs, targets)`` batches on the device; what is
done once (loading everything, say) is done before the first batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from devlint.runtime.loader import DeviceLoader, make_loader
from devlint.runtime.move import to_device
from devlint.runtime.preload import PreloadedDataset

Batches = Iterable[Any]
Way = Callable[[Any, torch.device, int, int], Batches]


def by_hand(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """move by hand"""
    for inputs, targets in DataLoader(dataset, batch_size, shuffle=True, num_workers=workers):
        yield inputs.to(device), targets.to(device)


def by_hand_pinned(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """by hand, pinned and non_blocking"""
    pin = device.type in ("cuda", "xpu")
    for inputs, targets in DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, pin_memory=pin):
        yield inputs.to(device, non_blocking=pin), targets.to(device, non_blocking=pin)


def pin_then_move(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """pin_memory().to() in the loop"""
    if device.type not in ("cuda", "xpu"):
        raise NotImplementedError("pinning needs CUDA or XPU")
    for inputs, targets in DataLoader(dataset, batch_size, shuffle=True, num_workers=workers):
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
        yield inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


class DeviceAwareDataset(Dataset[Any]):
    """The article's: moves sample by sample."""

    def __init__(self, dataset: Any, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        inputs, target = self.dataset[index]
        return inputs.to(self.device), target.to(self.device)


def device_aware(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """device-aware dataset"""
    return DataLoader(DeviceAwareDataset(dataset, device), batch_size, shuffle=True)


def preloaded_collated(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """preloaded, collated"""
    return DataLoader(PreloadedDataset(dataset, device), batch_size, shuffle=True)


def preloaded(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """PreloadedDataset, whole batches"""
    data = PreloadedDataset(dataset, device)
    return DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), batch_size, drop_last=False))


def moved(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """make_loader and to_device"""
    for batch in make_loader(dataset, device=device, num_workers=workers, batch_size=batch_size, shuffle=True):
        yield to_device(batch, device)


def prefetched(dataset: Any, device: torch.device, batch_size: int, workers: int) -> Batches:
    """make_loader and DeviceLoader"""
    loader = make_loader(dataset, device=device, num_workers=workers, batch_size=batch_size, shuffle=True)
    return DeviceLoader(loader, device, prefetch=1)


WAYS: tuple[Way, ...] = (
    by_hand,
    by_hand_pinned,
    pin_then_move,
    device_aware,
    preloaded_collated,
    preloaded,
    moved,
    prefetched,
)


def title(way: Way) -> str:
    """What a way is called in the table."""
    return inspect.getdoc(way) or way.__name__


def lines_of(way: Way) -> int:
    """Lines of code that a way takes, without signature and docstring; the article's dataset counts with its class."""
    lines = _code_lines(inspect.getsource(way))
    return lines + _code_lines(inspect.getsource(DeviceAwareDataset)) if way is device_aware else lines


def _code_lines(source: str) -> int:
    lines = [line.strip() for line in source.splitlines()[1:]]
    return sum(1 for line in lines if line and not line.startswith('"""'))
