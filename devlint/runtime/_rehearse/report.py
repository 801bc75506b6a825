"""What a rehearsal found: mismatches, host syncs, transfers and peak bytes, as data, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from devlint.runtime._rehearse.frames import shown


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a mismatch: ``argument`` is the operator's, ``name`` the best name the program has for it."""

    argument: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    origin: str

    def __str__(self) -> str:
        text = f"{self.argument}: {self.name}, shape {self.shape}, {self.dtype}, {self.device}"
        return f"{text}, {self.origin}" if self.origin else text


@dataclass(frozen=True)
class Mismatch:
    """One device error, raised where CUDA would raise it. ``rule`` is devlint's code, with its page."""

    message: str
    operator: str
    file: str
    line: int
    rule: str
    tensors: tuple[TensorInfo, ...] = ()
    forward: str = ""


@dataclass
class Sync:
    """A line where the host waits for the device, and how often it did. ``step`` counts from 0."""

    kind: str
    file: str
    line: int
    count: int = 0
    first_step: int = 0


@dataclass
class Transfer:
    """A line that copies between host and device (``H2D``, ``D2H``) or devices (``D2D``)."""

    direction: str
    file: str
    line: int
    pinned: bool
    non_blocking: bool
    count: int = 0
    bytes: int = 0


@dataclass
class Report:
    """The result of a rehearsal; complete once the ``with`` block has ended.

    ``notes`` says what was not rehearsed as CUDA would run it. ``peak_bytes`` is the largest total of live tensors
    on the rehearsed devices, within 5 %. ``operators`` counts the aten operators that were checked.
    """

    device: str
    count: int
    torch: str
    mismatches: list[Mismatch] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peak_bytes: int = 0
    steps: int = 0
    operators: int = 0

    @property
    def clean(self) -> bool:
        """No device error was found. Syncs and transfers cost time, they aren't errors."""
        return not self.mismatches

    def syncs_per_step(self) -> float:
        """Host syncs for each optimizer step, from the second step on where there is one."""
        return sum(sync.count for sync in self.syncs) / max(1, self.steps)

    def note(self, text: str) -> None:
        """Say once what the rehearsal can't show."""
        if text not in self.notes:
            self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: what ``--format json`` prints."""
        return {**asdict(self), "clean": self.clean}

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON."""
        return json.dumps(self.as_dict(), indent=indent)

    def text(self) -> str:
        """The report for a terminal."""
        lines = [
            f"rehearsed on {self.count} x {self.device} (torch {self.torch}): {self.operators} operators, "
            f"{_counted(self.steps, 'optimizer step')}, peak {_size(self.peak_bytes)}"
        ]
        for mismatch in self.mismatches:
            lines.append(f"{shown(mismatch.file)}:{mismatch.line}: {mismatch.rule} {mismatch.message}")
        if not self.mismatches:
            lines.append("no device error")
        if self.syncs:
            each = f" ({self.syncs_per_step():.1f} a step)" if self.steps else ""
            lines.append(f"host syncs: {_total(self.syncs)}{each}")
            for sync in sorted(self.syncs, key=lambda found: -found.count):
                lines.append(f"  {shown(sync.file)}:{sync.line}: {sync.kind}, {sync.count} x")
        if self.transfers:
            lines.append(f"transfers: {_total(self.transfers)}")
            for move in sorted(self.transfers, key=lambda found: -found.bytes):
                how = ("pinned" if move.pinned else "pageable") if move.direction == "H2D" else ""
                wait = "non-blocking" if move.non_blocking else "blocking"
                words = " ".join(word for word in (move.direction, how, wait) if word)
                lines.append(f"  {shown(move.file)}:{move.line}: {words}, {move.count} x, {_size(move.bytes)}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


class Ledger:
    """Adds up syncs and transfers by line while the rehearsal runs."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._syncs: dict[tuple[str, str, int], Sync] = {}
        self._transfers: dict[tuple[Any, ...], Transfer] = {}

    def sync(self, kind: str, file: str, line: int) -> None:
        """One host sync at ``file``:``line``."""
        found = self._syncs.get((kind, file, line))
        if found is None:
            found = self._syncs[kind, file, line] = Sync(kind, file, line, 0, self.report.steps)
            self.report.syncs.append(found)
        found.count += 1

    def transfer(self, direction: str, nbytes: int, pinned: bool, non_blocking: bool, file: str, line: int) -> None:
        """One copy of ``nbytes`` at ``file``:``line``."""
        key = (direction, file, line, pinned, non_blocking)
        found = self._transfers.get(key)
        if found is None:
            found = self._transfers[key] = Transfer(direction, file, line, pinned, non_blocking)
            self.report.transfers.append(found)
        found.count += 1
        found.bytes += nbytes


def _total(found: Iterable[Sync] | Iterable[Transfer]) -> int:
    return sum(item.count for item in found)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
