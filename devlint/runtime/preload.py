"""A dataset that lives on the device as a whole, after a look at whether it fits."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from devlint.runtime import walk
from devlint.runtime.device import require
from devlint.runtime.move import as_device, to_device


class PreloadedDataset(Dataset[Any]):
    """A map-style dataset with all its samples on a device, read and moved once.

    Numbers and NumPy arrays become tensors, with the dtype that DataLoader's collation would give them, so that no
    half of a batch stays on the CPU; strings and other objects stay. Where samples are alike (tensors, or tuples,
    lists or dicts of them, each with one shape), each field is one tensor of shape ``(len(dataset), …)``, and a list,
    slice or tensor of indices gives a whole batch in one indexing operation:

        loader = DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 64, drop_last=False))

    With ``batch_size=64`` and no sampler DataLoader collates samples as ever, on the device, more slowly. Use no
    worker processes: CUDA does not work in forked ones, and there is nothing left for them to do.

    Args:
        dataset: has ``__len__`` and ``__getitem__`` by number; it is read in order, once.
        device: where to.

    Raises:
        torch.cuda.OutOfMemoryError: (a RuntimeError) before anything is moved, if the samples need more bytes than
            are free, with both sizes and the alternative. The estimate from the first sample is checked before
            the others are read, the sum of all afterwards.
        DeviceUnavailableError: if the device cannot be used, with the reason.
        TypeError: for a dataset without a length.
    """

    def __init__(self, dataset: Any, device: torch.device | str | int) -> None:
        self.device = as_device(device)
        require(self.device)
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"PreloadedDataset needs __len__ and __getitem__, which {type(dataset).__name__} lacks; "
                "for a stream of samples use devlint.runtime.DeviceLoader"
            )
        self._length = len(dataset)
        samples = []
        free = free_bytes(self.device)
        total = 0
        for index in range(self._length):
            sample = to_device(_tensors_of(dataset[index]), "cpu")
            size = sum(tensor.numel() * tensor.element_size() for _, tensor in walk.tensors(sample))
            total += size
            if index == 0:
                self._check(size * self._length, free, "about ")
            samples.append(sample)
        self._check(total, free, "")
        self.nbytes = total
        columns = _columns(samples)
        self._columns = None if columns is None else to_device(columns, self.device)
        self._samples = to_device(samples, self.device) if columns is None else []
        self._build = _builder(samples[0]) if columns is not None else dict

    def _check(self, needed: int, free: int | None, about: str) -> None:
        if free is not None and needed > free:
            raise torch.cuda.OutOfMemoryError(
                f"PreloadedDataset: {self._length} samples need {about}{_size(needed)} on {self.device}, where "
                f"{_size(free)} are free; move batches instead: "
                "devlint.runtime.DeviceLoader(make_loader(dataset), device)"
            )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        """A sample by number; a batch by a list, slice or tensor of numbers. Raises IndexError past the end."""
        if not isinstance(index, (slice, torch.Tensor)) and hasattr(index, "__index__"):
            number = operator.index(index)
            if not -self._length <= number < self._length:
                raise IndexError(f"sample {number} of {self._length}")
            if self._columns is None:
                return self._samples[number]
            return self._build(_select(self._columns, number))
        if self._columns is None:
            raise TypeError("samples of different shapes can only be had one by one")
        if not isinstance(index, slice):
            index = to_device(torch.as_tensor(index, dtype=None if len(index) else torch.long), self.device)
        return self._build(_select(self._columns, index))


def free_bytes(device: torch.device) -> int | None:
    """Bytes free on a device, or None where there is no limit or no telling."""
    if device.type in ("cuda", "xpu"):
        backend: Any = getattr(torch, device.type)
        reserved = backend.memory_reserved(device) - backend.memory_allocated(device)  # torch's cache can be used, too
        return int(backend.mem_get_info(device)[0]) + int(reserved)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
    if device.type == "cpu":
        try:
            with open("/proc/meminfo") as file:
                for line in file:
                    if line.startswith("MemAvailable:"):
                        return int(line.split()[1]) * 1024
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):
            return None
    return None


def _tensors_of(sample: Any) -> Any:
    """The sample with numbers and arrays as tensors, in plain containers; other values are left for to_device."""
    cls = type(sample)
    if cls is bool or cls is int:
        return torch.tensor(sample)
    if cls is float:
        return torch.tensor(sample, dtype=torch.float64)
    if cls.__module__ == "numpy" and hasattr(sample, "dtype") and sample.dtype.kind in "biufc":
        return torch.as_tensor(sample)
    if cls is dict:
        return {key: _tensors_of(value) for key, value in sample.items()}
    if cls in (list, tuple):
        return cls(_tensors_of(value) for value in sample)
    if isinstance(sample, tuple) and hasattr(cls, "_make"):
        return cls._make(_tensors_of(value) for value in sample)
    return sample


def _fields(sample: Any) -> dict[Any, Any] | None:
    if type(sample) is torch.Tensor:
        return {None: sample}
    if type(sample) is dict:
        return dict(sample)
    if type(sample) in (tuple, list) or (isinstance(sample, tuple) and hasattr(sample, "_make")):
        return dict(enumerate(sample))
    return None


def _columns(samples: Sequence[Any]) -> dict[Any, torch.Tensor] | None:
    """Each field of the samples as one tensor with the samples along the first dimension; None if they differ."""
    if not samples:
        return None
    rows = [_fields(sample) for sample in samples]
    first = rows[0]
    if not first or any(type(value) is not torch.Tensor for value in first.values()):
        return None
    kinds = {key: (value.shape, value.dtype, value.layout) for key, value in first.items()}
    for sample, row in zip(samples, rows, strict=True):
        if type(sample) is not type(samples[0]) or row is None or row.keys() != first.keys():
            return None
        for key, value in row.items():
            if type(value) is not torch.Tensor or (value.shape, value.dtype, value.layout) != kinds[key]:
                return None
    if any(layout is not torch.strided for _, _, layout in kinds.values()):
        return None
    return {key: torch.stack([row[key] for row in rows if row is not None]) for key in first}


def _select(columns: Mapping[Any, torch.Tensor], index: Any) -> dict[Any, torch.Tensor]:
    return {key: column[index] for key, column in columns.items()}


def _builder(sample: Any) -> Callable[[dict[Any, torch.Tensor]], Any]:
    cls = type(sample)
    if cls is torch.Tensor:
        return lambda fields: fields[None]
    if cls is dict:
        return dict
    if hasattr(cls, "_make"):
        return lambda fields: cls._make(fields.values())
    return lambda fields: cls(fields.values())


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
