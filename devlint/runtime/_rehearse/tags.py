"""Which rehearsed device each storage lives on.

A storage lives on exactly one device, so storages are tagged, not tensor objects: views, saved tensors, ``.data``
swaps and Parameters keep their tag by themselves. A storage without a tag is where C++ says it is (the CPU).
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch

from devlint.runtime._rehearse.private_api import (
    free_weak_ref,
    no_torch_function,
    storage_expired,
    storage_id,
    untyped_storage,
)

_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_FIRST_SWEEP = 4096
_PEAK_STEP = 1.05


class Tag(NamedTuple):
    """What is known of one storage; ``origin`` is (verb, file, line) of the call that made or moved it."""

    weak: int
    device: Any
    nbytes: int
    origin: tuple[str, str, int] | None
    pinned: bool


class Tags:
    """Storage id -> Tag. A weak reference is held for each, so that no id is used twice while its tag lives."""

    def __init__(self, cpu: torch.device) -> None:
        self.entries: dict[int, Tag] = {}
        self.cpu = cpu
        self.peak = 0
        self._lock = threading.RLock()
        self._sweep_at = _FIRST_SWEEP
        self._bytes = 0
        self._bytes_at = 0

    def set(
        self,
        tensor: torch.Tensor,
        device: Any,
        origin: tuple[str, str, int] | None = None,
        pinned: bool = False,
    ) -> None:
        """Tag ``tensor``'s storage (for a sparse tensor, the storages of its indices and values)."""
        try:
            with no_torch_function():
                storage = untyped_storage(tensor)
        except (NotImplementedError, RuntimeError):
            for part in parts(tensor):
                self.set(part, device, origin, pinned)
            return
        key = storage._cdata
        with self._lock:
            old = self.entries.get(key)
            if old is None:
                self.add(key, storage, device, origin, pinned)
            else:
                self.entries[key] = Tag(old.weak, device, storage.nbytes(), origin or old.origin, pinned)

    def add(self, key: int, storage: Any, device: Any, origin: Any = None, pinned: bool = False) -> None:
        """Tag a storage that has no tag yet; ``key`` is its id."""
        nbytes = storage.nbytes()
        self.entries[key] = tuple.__new__(Tag, (storage._weak_ref(), device, nbytes, origin, pinned))
        if device is not self.cpu:
            self._bytes += nbytes
            if self._bytes > self._bytes_at:
                self.sweep()
        if len(self.entries) > self._sweep_at:
            self.sweep()

    def get(self, tensor: torch.Tensor) -> Tag | None:
        """The tag of ``tensor``'s storage, or None."""
        try:
            return self.entries.get(storage_id(tensor))
        except (NotImplementedError, RuntimeError):
            for part in parts(tensor):
                return self.get(part)
            return None

    def sweep(self) -> None:
        """Forget dead storages, and bring the byte count and its peak up to date."""
        with self._lock:
            live: dict[int, Tag] = {}
            total = 0
            expired, cpu = storage_expired, self.cpu
            for key, tag in self.entries.items():
                weak, device, nbytes, _, _ = tag
                if expired(weak):
                    free_weak_ref(weak)
                else:
                    live[key] = tag
                    if device is not cpu:
                        total += nbytes
            self.entries.clear()
            self.entries.update(live)
            self._bytes = total
            self.peak = max(self.peak, total)
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(live))
            self._bytes_at = max(int(self.peak * _PEAK_STEP), int(total * _PEAK_STEP), 1 << 10)

    def live_bytes(self, device: Any = None) -> int:
        """Bytes of live storages on the rehearsed device(s)."""
        self.sweep()
        if device is None:
            return self._bytes
        return sum(tag.nbytes for tag in self.entries.values() if tag.device == device)

    def reset_peak(self) -> None:
        """Count the peak from now on."""
        self.peak = 0
        self.sweep()

    def clear(self) -> None:
        """Let every storage go."""
        with self._lock:
            for tag in self.entries.values():
                free_weak_ref(tag.weak)
            self.entries.clear()


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors inside a sparse one; nothing for a tensor that has no storage at all."""
    with no_torch_function():
        layout = tensor.layout
        if layout not in _SPARSE:
            return []
        if layout is torch.sparse_coo:
            return [tensor._values(), tensor._indices()]
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
        return [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
