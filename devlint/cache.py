"""What earlier runs found, kept beside the configuration in `.devlint_cache/`, so that only changed files are checked.

One file of plain lines for each configuration: a checksum, the file's path, its time, size and content hash, and its
findings. Time and size are looked at first, the content where they differ. A line that is damaged is a miss. The file
is replaced in one step, so that several devlints at once lose at most each other's news.
"""

from __future__ import annotations

import os
import sys
import time
from zlib import crc32

from devlint import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from devlint.config import Config
    from devlint.findings import FileResult, Finding

FOLDER = ".devlint_cache"
NOTHING = "-"
_DECISIVE = ("select", "extend-select", "ignore", "per-file-ignores", "fix-style")
_KEPT = 8
"""How many configurations' files are kept."""
_SETTLED = 2_000_000_000
"""A file whose time is younger than this, in nanoseconds, may change once more without its time telling."""


def digest(data: bytes) -> str:
    """A hash of a file's content."""
    try:
        from _blake2 import blake2b  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import blake2b
    text: str = blake2b(data, digest_size=16).hexdigest()
    return text


class Cache:
    """The findings of earlier runs under one configuration."""

    def __init__(self, config: Config) -> None:
        self.folder = os.path.join(config.root, FOLDER)
        chosen = [(name, config.values[name]) for name in _DECISIVE if name in config.values]
        facts = (__version__, sys.hexversion, _package(), config.root, config.target, chosen)
        self.path = os.path.join(self.folder, digest(repr(facts).encode("utf-8", "surrogateescape")) + ".txt")
        self._lines: dict[bytes, bytes] | None = None

    def exists(self) -> bool:
        """Whether an earlier run accepted this configuration."""
        return os.path.exists(self.path)

    def by_time(self, path: str) -> str | None:
        """The findings of the file at `path` (absolute), if it is as old and as large as it was; None if unknown."""
        fields = self._fields(path)
        if fields is None:
            return None
        try:
            status = os.stat(path)
        except OSError:
            return None
        same = fields[2] == b"%d" % status.st_mtime_ns and fields[3] == b"%d" % status.st_size
        return _current(fields[5].decode("ascii", "replace")) if same else None

    def by_content(self, path: str, data: bytes) -> str | None:
        """The findings of the file at `path` (absolute), if it held `data` before; None if unknown."""
        fields = self._fields(path)
        same = fields is not None and fields[4] == digest(data).encode()
        return _current(fields[5].decode("ascii", "replace")) if fields is not None and same else None

    def _fields(self, path: str) -> list[bytes] | None:
        """Checksum, path, time, size, hash and findings of a file's line, if it has one that is whole."""
        if self._lines is None:
            self._lines = self._read()
        line = self._lines.get(os.fsencode(path))
        if line is None or line[:8] != _checksum(line[9:]):
            return None
        fields = line.split(b"\t", 5)
        return fields if len(fields) == 6 else None

    def _read(self) -> dict[bytes, bytes]:
        try:
            with open(self.path, "rb") as file:
                return {line[9 : line.find(b"\t", 9)]: line for line in file.read().split(b"\n")}
        except OSError:
            return {}

    def write(self, news: Iterable[bytes], checked: Iterable[str]) -> None:
        """Add lines made by `entry`; where the folder cannot be written, nothing is kept."""
        present = {os.fsencode(path) for path in checked}
        lines = {path: line for path, line in self._read().items() if path in present or os.path.exists(path)}
        lines.update((line[9 : line.find(b"\t", 9)], line) for line in news)
        try:
            self._prepare()
            temporary = f"{self.path}.{os.getpid()}"
            with open(temporary, "wb") as file:
                file.write(b"\n".join([*lines.values(), b""]))
            os.replace(temporary, self.path)
            self._prune()
        except OSError:
            return

    def _prepare(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        ignore = os.path.join(self.folder, ".gitignore")
        if not os.path.exists(ignore):
            with open(ignore, "w", encoding="utf-8") as file:
                file.write("# Made by devlint.\n*\n")

    def _prune(self) -> None:
        entries = [entry for entry in os.scandir(self.folder) if entry.name != ".gitignore"]
        for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)[_KEPT:]:
            os.unlink(entry.path)


def entry(path: str, status: os.stat_result, data: bytes, findings: str) -> bytes | None:
    """What `Cache.write` takes for the file at `path` (absolute). None for a path that a line cannot hold."""
    name = os.fsencode(path)
    if b"\t" in name or b"\n" in name:
        return None
    settled = time.time_ns() - status.st_mtime_ns > _SETTLED
    fields = b"%d\t%d\t" % (status.st_mtime_ns if settled else 0, status.st_size)
    rest = name + b"\t" + fields + f"{digest(data)}\t{findings}".encode()
    return _checksum(rest) + b"\t" + rest


def depending(findings: str, stamps: Sequence[tuple[str, int, int]]) -> str:
    """Findings as text, with the path, time and size of each other file that they stand on."""
    if not stamps:
        return findings
    import json

    return "@" + json.dumps(stamps, ensure_ascii=True, separators=(",", ":")) + findings


def _current(text: str) -> str | None:
    """The findings of a line, if the files that they stand on are as they were."""
    if not text.startswith("@"):
        return text
    import json

    try:
        stamps, end = json.JSONDecoder().raw_decode(text, 1)
        for path, when, size in stamps:
            status = os.stat(path)
            if (status.st_mtime_ns, status.st_size) != (when, size):
                return None
    except (ValueError, TypeError, OSError):
        return None
    return text[end:]


def _checksum(rest: bytes) -> bytes:
    return b"%08x" % crc32(rest)


def _package() -> list[tuple[str, int, int]]:
    """The files of devlint itself that findings depend on: while it is worked on, its version says too little."""
    found: list[tuple[str, int, int]] = []
    pending = [os.path.dirname(os.path.abspath(__file__))]
    while pending:
        for item in os.scandir(pending.pop()):
            if item.name.endswith(".py"):
                status = item.stat()
                found.append((item.path, status.st_mtime_ns, status.st_size))
            elif item.is_dir() and item.name not in ("runtime", "rules", "report", "__pycache__"):
                pending.append(item.path)
    return sorted(found)


def dump(findings: Sequence[Finding]) -> str:
    """Findings as one line of text."""
    if not findings:
        return NOTHING
    import json
    from dataclasses import astuple

    return json.dumps([astuple(finding) for finding in findings], ensure_ascii=True, separators=(",", ":"))


def load(path: str, text: str) -> FileResult | None:
    """The result that was dumped for the file at `path`; None where it holds nothing.

    Raises ValueError for text that is no dump, and OSError where the file cannot be read.
    """
    if text == NOTHING:
        return None
    import json

    from devlint.findings import FileResult
    from devlint.source import Source, SourceError

    try:
        findings = tuple(_finding(row, path) for row in json.loads(text))
    except (TypeError, IndexError) as error:
        raise ValueError(str(error)) from None
    with open(path, "rb") as file:
        data = file.read()
    try:
        source: Source | None = Source(path, data)
    except SourceError:
        source = None
    return FileResult(path, findings, source=source)


def _finding(row: list[Any], path: str) -> Finding:
    from devlint.findings import Edit, Evidence, Finding, Fix, Span

    code, name, message, span, evidence, fix, help, _, cell = row
    steps = tuple(Evidence(text, Span(*place)) for text, place in evidence)
    mend = None
    if fix is not None:
        text, edits, applicability, needs, obsoletes = fix
        mend = Fix(text, tuple(Edit(*edit) for edit in edits), applicability, tuple(needs), tuple(obsoletes))
    return Finding(code, name, message, Span(*span), steps, mend, help, path, cell)
