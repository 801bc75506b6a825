"""Streams and events of a rehearsed device. Work is done at once; waiting on the host counts as a sync."""

from __future__ import annotations

import time
from typing import Any

import torch

from devlint.runtime._rehearse.state import Rehearsal


def stream_types(session: Rehearsal) -> tuple[type, type, type]:
    """The stand-ins for ``torch.cuda.Stream``, ``torch.cuda.Event`` and ``torch.cuda.stream``."""
    current: dict[int, Any] = {}
    defaults: dict[int, Any] = {}

    class Event:
        def __init__(self, enable_timing: bool = False, blocking: bool = False, **_: Any) -> None:
            self.enable_timing = enable_timing
            self.device = session.devices[session.current]
            self._time: float | None = None

        def record(self, stream: Any = None) -> None:
            self._time = time.perf_counter()

        def wait(self, stream: Any = None) -> None:
            return None

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            session.sync("event synchronize")

        def elapsed_time(self, end_event: Any) -> float:
            if not (self.enable_timing and end_event.enable_timing):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._time is None or end_event._time is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return float(end_event._time - self._time) * 1e3

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
            target = session.devices[session.current] if device is None else session.resolve(device)
            self.device = target or session.devices[session.current]
            self.priority = priority
            self.device_index = self.device.index
            self.stream_id = self.cuda_stream = 0

        def wait_stream(self, stream: Any) -> None:
            return None

        def wait_event(self, event: Any) -> None:
            return None

        def synchronize(self) -> None:
            session.sync("stream synchronize")

        def record_event(self, event: Any = None) -> Any:
            event = event if event is not None else Event()
            event.record(self)
            return event

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return False

        def __enter__(self) -> Any:
            self._context = StreamContext(self)
            self._context.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            self._context.__exit__(*error)

    class StreamContext:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> Any:
            if self.stream is not None:
                index = self.stream.device.index
                self._before = (session.current, index, current.get(index))
                session.current, current[index] = index, self.stream
            return self.stream

        def __exit__(self, *error: Any) -> None:
            if self.stream is not None:
                session.current, index, before = self._before
                if before is None:
                    current.pop(index, None)
                else:
                    current[index] = before

    def of(device: Any = None) -> Any:
        target = session.devices[session.current] if device is None else session.resolve(device)
        index = (target or session.devices[session.current]).index
        return current.get(index) or default(index)

    def default(device: Any = None) -> Any:
        target = session.devices[session.current] if device is None else session.resolve(device)
        index = (target or session.devices[session.current]).index
        if index not in defaults:
            defaults[index] = Stream(index)
        return defaults[index]

    def choose(stream: Any) -> None:
        if stream is not None:
            session.current = stream.device.index
            current[session.current] = stream

    functions: dict[str, Any] = {"of": of, "default": default, "choose": choose}
    for name, function in functions.items():
        setattr(Stream, name, staticmethod(function))
    return Stream, Event, StreamContext


def generic_event(session: Rehearsal, event: type) -> type:
    """The stand-in for ``torch.Event``, which names its device first."""

    class Event(event):  # type: ignore[misc]
        def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
            super().__init__(enable_timing)
            if device is not None:
                self.device = session.resolve(device) or torch.device(device)

    return Event


class DeviceScope:
    """``torch.cuda.device``: the current device inside a block."""

    session: Rehearsal

    def __init__(self, device: Any) -> None:
        if isinstance(device, torch.Tensor):
            device = device.device
        self._index = None
        if device is not None and not (isinstance(device, int) and device < 0):
            target = self.session.resolve(device)
            self._index = target.index if target is not None else None
        self._before = self.session.current

    def __enter__(self) -> None:
        self._before = self.session.current
        if self._index is not None:
            self.session.current = self._index

    def __exit__(self, *error: Any) -> None:
        self.session.current = self._before
