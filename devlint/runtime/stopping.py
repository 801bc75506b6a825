"""Stopping on SIGTERM: noticed between steps, and by all processes at the same step."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from devlint.runtime.dist import world


class Stopper:
    """While entered, SIGTERM sets ``requested``. Signals can only be caught in the main thread: elsewhere, nothing.

    With several processes the signal reaches them at different steps. ``agreed`` is asked after every step: each call
    sends this process's answer off, on the CPU, and returns what all had said one step before.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.requested = False
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: Any = None
        self._group: Any = None
        self._work: Any = None
        self._flag = torch.zeros((), dtype=torch.int32)
        self._several = enabled and world()[1] > 1

    def __enter__(self) -> Stopper:
        if self._enabled:
            self._before = signal.signal(signal.SIGTERM, self._request)
        if self._several:
            self._group = torch.distributed.new_group(backend="gloo")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._enabled:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
        if self._group is not None and kind is None:
            if self._work is not None:
                self._work.wait()
            torch.distributed.destroy_process_group(self._group)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def agreed(self) -> bool:
        """Whether to stop now."""
        if not self._several:
            return self.requested
        stop = False
        if self._work is not None:
            self._work.wait()
            stop = bool(self._flag)
        self._flag = torch.tensor(int(self.requested), dtype=torch.int32)
        self._work = torch.distributed.all_reduce(
            self._flag, op=torch.distributed.ReduceOp.MAX, group=self._group, async_op=True
        )
        return stop
