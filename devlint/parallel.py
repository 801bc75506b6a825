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
from collections.abc import Callable, Iterator, Sequence

from devlint.findings import FileResult

_Result = FileResult | None


def fork_map(work: Callable[[str], _Result], files: Sequence[str], jobs: int) -> list[_Result]:
    """`[work(file) for file in files]`, by `jobs` processes; a file that ends its process gives an error."""
    done = _run(work, [files[start::jobs] for start in range(jobs)])
    for file in files:
        if file not in done:
            ends: list[str] = []
            done.update(_run(work, [[file]], ends))
            if file not in done:
                text = f"{file}: checking it ended the process ({ends[0]}); exclude the file, and report it, please"
                done[file] = FileResult(file, errors=(text,))
    return [done[file] for file in files]


def _run(
    work: Callable[[str], _Result], shares: Sequence[Sequence[str]], ends: list[str] | None = None
) -> dict[str, _Result]:
    """The results of all shares, one process each; `ends` takes how each process ended."""
    children = [_Child(work, share) for share in shares]
    try:
        with selectors.DefaultSelector() as selector:
            for child in children:
                selector.register(child.pipe, selectors.EVENT_READ, child)
            while selector.get_map():
                for key, _ in selector.select():
                    child = key.data
                    chunk = os.read(child.pipe, 1 << 20)
                    child.received += chunk
                    if not chunk:
                        selector.unregister(child.pipe)
    except BaseException:
        for child in children:
            os.kill(child.pid, signal.SIGTERM)
        raise
    finally:
        reports = [child.wait() for child in children]
    if ends is not None:
        ends += reports
    return {file: result for child in children for file, result in child.results()}


class _Child:
    """A forked process that works through its share and writes (file, result) pairs to a pipe."""

    def __init__(self, work: Callable[[str], _Result], share: Sequence[str]) -> None:
        self.received = bytearray()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.pipe)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                with os.fdopen(writing, "wb") as stream:
                    for file in share:
                        pickle.dump((file, work(file)), stream)
                os._exit(0)
            except BaseException:
                os._exit(1)
        os.close(writing)

    def wait(self) -> str:
        """Wait for the end of the process, and say how it ended."""
        os.close(self.pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def results(self) -> Iterator[tuple[str, _Result]]:
        """The pairs that arrived whole."""
        stream = io.BytesIO(bytes(self.received))
        while True:
            try:
                yield pickle.load(stream)
            except (EOFError, pickle.UnpicklingError):
                return
