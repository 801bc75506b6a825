"""Work spread over forked processes, which hand their results back through pipes.

A fork with a pipe starts at a fraction of what a pool costs, and a child that dies takes nothing with it: what it
still owed is done again, one item a process, so that the item at fault is known.
"""

from __future__ import annotations

import io
import os
import pickle
import selectors
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Died(Exception):
    """The process that worked on an item ended before it was done; the message says how."""


def fork_map(work: Callable[[str], _T], items: Sequence[str], jobs: int) -> list[_T | Died]:
    """`[work(item) for item in items]`, by `jobs` processes; Died stands for an item that ends its process."""
    done, _ = _run(work, [items[start::jobs] for start in range(jobs)])
    results: list[_T | Died] = []
    for item in items:
        if item not in done:
            again, [end] = _run(work, [[item]])
            done.update(again)
            results.append(again[item] if item in again else Died(end))
        else:
            results.append(done[item])
    return results


def _run(work: Callable[[str], _T], shares: Sequence[Sequence[str]]) -> tuple[dict[str, _T], list[str]]:
    """The results of all shares, one process each, and how each process ended."""
    children = [_Child(work, share) for share in shares]
    try:
        with selectors.DefaultSelector() as selector:
            for child in children:
                selector.register(child.pipe, selectors.EVENT_READ, child)
            while selector.get_map():
                for key, _ in selector.select():
                    chunk = os.read(key.fd, 1 << 20)
                    key.data.received += chunk
                    if not chunk:
                        selector.unregister(key.fd)
    except BaseException:
        for child in children:
            os.kill(child.pid, signal.SIGTERM)
        raise
    finally:
        ends = [child.wait() for child in children]
    return {item: result for child in children for item, result in child.results()}, ends


class _Child(Generic[_T]):
    """A forked process that works through its share and writes (item, result) pairs to a pipe."""

    def __init__(self, work: Callable[[str], _T], share: Sequence[str]) -> None:
        self.received = bytearray()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe, writing = os.pipe()
        with warnings.catch_warnings():
            # From 3.12 on, Python warns of threads, which the child never meets: it calls `work` and ends.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.pipe)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                with os.fdopen(writing, "wb") as stream:
                    for item in share:
                        pickle.dump((item, work(item)), stream)
                os._exit(0)
            except BaseException:
                os._exit(1)
        os.close(writing)

    def wait(self) -> str:
        """Wait for the end of the process, and say how it ended."""
        os.close(self.pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def results(self) -> Iterator[tuple[str, _T]]:
        """The pairs that arrived whole."""
        stream = io.BytesIO(bytes(self.received))
        while True:
            try:
                yield pickle.load(stream)
            except (EOFError, pickle.UnpicklingError):
                return
