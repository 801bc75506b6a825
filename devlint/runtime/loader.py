"""Loading: a DataLoader with settings that fit the machine, and a loader whose batches are on the device."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, IterableDataset

from devlint.runtime import walk
from devlint.runtime.cores import usable_cores
from devlint.runtime.device import accelerator_type, require
from devlint.runtime.errors import DeviceMismatchError
from devlint.runtime.move import as_device, names, to_device

MAX_WORKERS = 16
_HOST = ("cpu", "meta")


def make_loader(
    dataset: Any,
    *,
    device: torch.device | str | None = None,
    num_workers: int | Literal["auto"] = "auto",
    seed: int | None = None,
    **dataloader_kwargs: Any,
) -> DataLoader[Any]:
    """A DataLoader whose settings fit the dataset, the device and the machine.

    Args:
        dataset: map-style or iterable.
        device: where the batches will go; None is the accelerator there is. Memory is pinned for accelerators but
            MPS, and only if one can be used.
        num_workers: ``"auto"`` takes the cores that this process may use (affinity and container quota), shared
            with the other processes of this machine (``LOCAL_WORLD_SIZE``), less one for training, at most 16; one
            for an iterable dataset, which several workers would read several times over; none where samples are
            on an accelerator already.
        seed: makes shuffling and the workers' random numbers (``random``, NumPy, torch) repeat.
        dataloader_kwargs: passed to DataLoader, and win over what would be chosen here. ``persistent_workers`` and
            ``prefetch_factor`` mean nothing without workers, and are then left out rather than refused.

    Raises:
        ValueError: if samples are on an accelerator and workers are asked for: CUDA cannot be used in forked
            workers. The sample's tensor is named. Also for a bad ``num_workers``, or ``seed`` beside ``generator``.

    To find such samples, one sample of a map-style dataset is read when there are workers and an accelerator; the
    random state is put back.

    Source: `torch.utils.data`, "Multi-process data loading" and "Memory pinning", in the PyTorch documentation.
    """
    workers: Any = num_workers
    if workers != "auto" and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise ValueError(f"make_loader: num_workers is {workers!r}; it must be 'auto' or a number from 0")
    options = dict(dataloader_kwargs)
    kind = accelerator_type()
    on_device = _accelerated_sample(dataset) if workers != 0 and kind is not None else ""
    if workers == "auto":
        count = 0 if on_device else max(0, min(usable_cores() - 1, MAX_WORKERS))
        workers = min(count, 1) if isinstance(dataset, IterableDataset) else count
    elif workers and on_device:
        raise ValueError(
            f"make_loader: {type(dataset).__name__} returns tensors on an accelerator ({on_device}), which "
            f"{workers} worker process{'es' if workers > 1 else ''} cannot do: return CPU tensors and wrap the loader, "
            "devlint.runtime.DeviceLoader(loader, device), or pass num_workers=0"
        )
    if seed is not None:
        if options.get("generator") is not None:
            raise ValueError("make_loader: both seed and generator are given; the generator carries its own seed")
        options["generator"] = torch.Generator().manual_seed(seed)
    if "pin_memory" not in options:
        target = as_device(device).type if device is not None else kind
        reachable = kind is not None and target not in (None, "mps", *_HOST)
        options["pin_memory"] = reachable and not (on_device or _accelerated_attribute(dataset))
    if workers:
        options.setdefault("persistent_workers", True)
    else:
        options.pop("persistent_workers", None)
        options.pop("prefetch_factor", None)
    return DataLoader(dataset, num_workers=workers, **options)


def _accelerated_attribute(dataset: Any) -> bool:
    """Whether a dataset keeps tensors on an accelerator, as ``TensorDataset`` and ``PreloadedDataset`` may."""
    seen = 0
    while dataset is not None and seen < 8:
        for _, value in walk.attributes(dataset):
            if any(tensor.device.type not in _HOST for _, tensor in walk.tensors(value)):
                return True
        dataset, seen = getattr(dataset, "dataset", None), seen + 1
    return False


def _accelerated_sample(dataset: Any) -> str:
    """Path and device of a sample's tensor that is on an accelerator; empty if there is none or no telling."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return ""
    state, own_state = torch.get_rng_state(), random.getstate()
    numpy_state = _numpy_random("get_state")
    try:
        sample = dataset[0]
    except Exception:  # keys other than numbers, an empty dataset: the loader's own matter
        return ""
    finally:
        torch.set_rng_state(state)
        random.setstate(own_state)
        if numpy_state is not None:
            _numpy_random("set_state", numpy_state)
    for path, tensor in walk.tensors(sample, "dataset[0]"):
        if tensor.device.type not in _HOST:
            return f"{path} is on {tensor.device}"
    return ""


def _numpy_random(function: str, *args: Any) -> Any:
    numpy = sys.modules.get("numpy")
    return getattr(numpy.random, function)(*args) if numpy is not None else None


class DeviceLoader:
    """A loader whose batches are on a device: wraps any iterable of batches.

    Batches are moved in the main process, so workers never touch the accelerator. On CUDA and XPU the next
    ``prefetch`` batches are copied on a side stream while the current one is computed on; an event makes the
    consuming stream wait, and ``record_stream`` keeps the memory from being reused too soon. Elsewhere batches are
    moved as they come. The order, and an error's place in it, are the wrapped loader's.

    Length, ``set_epoch`` (of the loader or its samplers), ``state_dict`` and every other attribute are the wrapped
    loader's; ``state_dict`` is that of the last batch handed out, whatever was read ahead. It can be iterated again if
    the loader can; leaving a loop midway frees the batches read ahead and the loader's workers.

    Args:
        loader: a DataLoader, or any iterable of nested batches on the CPU or already on ``device``.
        device: where to; ``"cuda"`` without an index is the current device.
        prefetch: batches copied ahead, each costing its memory on the device; 0 copies on the current stream.
        skip: names of keys and fields that stay where they are, as for ``to_device``.
        transform: called with each batch on the device, on the consuming stream; its result is handed out.

    Raises:
        ValueError: for ``prefetch < 0`` or a device that is none.
        TypeError: for a loader that cannot be iterated, or a transform that cannot be called.
        DeviceUnavailableError: when iterated, if the device cannot be used, with the reason.
        DeviceMismatchError: for a batch that is on another accelerator.

    Source: the stream semantics of `torch.Tensor.record_stream` and the CUDA notes in the PyTorch documentation.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | int,
        *,
        prefetch: int = 1,
        skip: Iterable[Any] = (),
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            raise TypeError(f"DeviceLoader wraps an iterable of batches, not {type(loader).__name__}")
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
            raise ValueError(f"DeviceLoader: prefetch is {prefetch!r}; it must be a number of batches from 0")
        if transform is not None and not callable(transform):
            raise TypeError(f"DeviceLoader: transform is {transform!r}, which cannot be called")
        self.loader: Any = loader
        self.device = as_device(device)
        self.prefetch = prefetch
        self.skip = names(skip)
        self.transform = transform
        self._state: Any = None  # of the wrapped loader at the last batch handed out, while batches are read ahead

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet: copying, unpickling
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __repr__(self) -> str:
        return f"DeviceLoader({self.loader!r}, {str(self.device)!r}, prefetch={self.prefetch})"

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader, or else its samplers, which epoch it is; without anyone to tell, nothing happens."""
        batch_sampler = getattr(self.loader, "batch_sampler", None)
        candidates = (self.loader, getattr(self.loader, "sampler", None), batch_sampler)
        for candidate in (*candidates, getattr(batch_sampler, "sampler", None)):
            setter = getattr(candidate, "set_epoch", None)
            if setter is not None:
                setter(epoch)
                return

    def state_dict(self) -> Any:
        """The wrapped loader's state as of the last batch handed out."""
        return self._state if self._state is not None else self.loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Hand a state to the wrapped loader."""
        self._state = None
        self.loader.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        require(self.device)
        if self.device.type in ("cuda", "xpu") and self.prefetch:
            return self._ahead()
        return self._plain()

    def _plain(self) -> Iterator[Any]:
        self._state = None
        for batch in self.loader:
            yield self._transformed(self._moved(batch))

    def _ahead(self) -> Iterator[Any]:
        backend: Any = getattr(torch, self.device.type)
        side = backend.Stream(device=self.device)
        stateful = hasattr(self.loader, "state_dict")
        ready: deque[tuple[Any, Any, Any, Any]] = deque()
        source = iter(self.loader)
        failure: BaseException | None = None
        done = False
        try:
            while True:
                while not done and len(ready) <= self.prefetch:
                    try:
                        batch = next(source)
                    except StopIteration:
                        done = True
                        break
                    except Exception as error:  # raised in its place: after the batches before it
                        done, failure = True, error
                        break
                    with backend.stream(side):
                        moved = self._moved(batch)
                        arrived = side.record_event()
                    ready.append((batch, moved, arrived, self.loader.state_dict() if stateful else None))
                if not ready:
                    self._state = None
                    if failure is not None:
                        raise failure
                    return
                _, moved, arrived, self._state = ready.popleft()
                current = backend.current_stream(self.device)
                current.wait_event(arrived)
                for _, tensor in walk.tensors(moved):
                    if tensor.device.type == self.device.type:
                        tensor.record_stream(current)
                moved = self._transformed(moved)
                batch = None  # the host's copy, and below the device's, live no longer than their use
                yield moved
                moved = None
        finally:
            ready.clear()
            del source

    def _moved(self, batch: Any) -> Any:
        for path, tensor in walk.tensors(batch, "batch"):
            here = tensor.device
            if here.type in _HOST or (here.type == self.device.type and self.device.index in (None, here.index)):
                continue
            raise DeviceMismatchError(
                f"DeviceLoader towards {self.device}: {path} is on {here} already; yield CPU tensors from the loader, "
                f"or wrap it for {here}",
                {path: here},
            )
        return to_device(batch, self.device, skip=self.skip)

    def _transformed(self, batch: Any) -> Any:
        return batch if self.transform is None else self.transform(batch)
