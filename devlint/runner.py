"""A run: files checked, and fixed where that is asked for, in one process or several, the results in order."""

from __future__ import annotations

import gc
import os

from devlint.files import explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devlint.config import Config, Configs
    from devlint.files import Found
    from devlint.findings import FileResult, Finding
    from devlint.settings import Settings
    from devlint.source import Source

    _Work = Callable[[str], tuple[FileResult | None, bytes | None]]

_WORTH_FORKING = 60
"""Files below which starting another process costs more than it saves."""
_WORTH_LOOKING_UP = 8
"""Files below which reading them costs less than opening the cache."""


def run(found: Found, configs: Configs, jobs: int | None, *, diff: bool = False) -> list[FileResult]:
    """The results of the files that have anything to say, in the order of the files, however many `jobs` there are.

    Raises UsageError for a configuration that is wrong.
    """
    # LibCST makes tens of thousands of objects a file, and they go when the file does: looking for cycles only costs.
    gc.set_threshold(100_000, 50, 50)
    results: dict[str, FileResult | None] = {}
    pending: list[str] = []
    by_folder: dict[str, Config] = {}
    holds: dict[str, Config] = {}
    for file in found.files:
        absolute = found.absolute[file]
        folder = absolute.rpartition(os.sep)[0] or os.sep
        config = by_folder.get(folder)
        if config is None:
            config = by_folder[folder] = configs.for_folder(folder)
        known = config.cache.by_time(absolute) if len(found.files) >= _WORTH_LOOKING_UP and config.cache else None
        hit, result = _recall(file, known, config, diff)
        if hit:
            results[file] = result
        else:
            pending.append(file)
            holds[file] = config

    def work(file: str) -> tuple[FileResult | None, bytes | None]:
        return check_file(file, holds[file], diff=diff, small=len(found.files) < _WORTH_LOOKING_UP)

    news: dict[int, list[bytes]] = {}
    for file, (result, entry) in zip(pending, _work(work, pending, jobs), strict=True):
        results[file] = result
        if entry is not None:
            news.setdefault(id(holds[file]), []).append(entry)
    for config in {id(config): config for config in holds.values()}.values():
        if id(config) in news and config.cache is not None:
            config.cache.write(news[id(config)], found.absolute.values())
    return [result for file in found.files if (result := results[file]) is not None]


def _recall(path: str, known: str | None, config: Config, diff: bool) -> tuple[bool, FileResult | None]:
    """Whether what the cache knows of a file can stand for checking it, and if so, the result."""
    if known is None:
        return False, None
    from devlint.cache import NOTHING, load

    if known == NOTHING:
        return True, None
    if diff or config.flag("fix"):
        return False, None
    try:
        return True, load(path, known)
    except (ValueError, OSError):
        return False, None


def _work(work: _Work, files: Sequence[str], jobs: int | None) -> list[tuple[FileResult | None, bytes | None]]:
    """Each file's result, and what the cache is to know of it."""
    wanted = jobs if jobs is not None else _processors() if len(files) >= _WORTH_FORKING else 1
    wanted = min(wanted, len(files))
    if wanted < 2 or not hasattr(os, "fork"):
        return list(map(work, files))
    from devlint.findings import FileResult
    from devlint.parallel import Died, fork_map

    done: list[tuple[FileResult | None, bytes | None]] = []
    for file, result in zip(files, fork_map(work, files, wanted), strict=True):
        if isinstance(result, Died):
            text = f"{file}: checking it ended the process ({result}); exclude the file, and report it, please"
            done.append((FileResult(file, errors=(text,)), None))
        else:
            done.append(result)
    return done


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_file(
    path: str, config: Config, *, diff: bool = False, small: bool = True
) -> tuple[FileResult | None, bytes | None]:
    """Check the file at `path`, and mend it where the configuration says so.

    The result is None where there is nothing to say. With it comes what the cache is to know; in a `small` run, the
    cache is not bothered with files that have no torch in them.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
            status = os.fstat(file.fileno())
    except OSError as error:
        from devlint.findings import FileResult

        return FileResult(path, errors=(explain(path, error),)), None
    gated = b"torch" not in data and b"\0" not in data
    if gated and (small or config.cache is None):
        return None, None
    known = None if gated or config.cache is None else config.cache.by_content(os.path.abspath(path), data)
    hit, result = _recall(path, known, config, diff)
    fixing = diff or config.flag("fix")
    if not gated and not hit:
        result = check_data(path, data, config.settings(path), fix=fixing, unsafe=config.flag("unsafe-fixes"))
    entry = _entry(path, status, data, result) if config.cache is not None and not (fixing and result) else None
    if result is not None and fixing and result.source is not None:
        result = _write(result, data, diff, config.settings(path))
    return result, entry


def _entry(path: str, status: os.stat_result, data: bytes, result: FileResult | None) -> bytes | None:
    import sys

    from devlint.cache import depending, dump, entry

    project = sys.modules.get("devlint.semantics.project")
    stamps = project.consulted(path) if project is not None else []
    findings = result.findings if result else ()
    if any(finding.code == "TDL900" for finding in findings):
        return None
    return entry(os.path.abspath(path), status, data, depending(dump(findings), stamps))


def check_data(
    path: str, data: bytes, settings: Settings, *, fix: bool = False, unsafe: bool = False
) -> FileResult | None:
    """Check bytes as the content of `path`; with `fix`, the result's source is the fixed one. Writes nothing."""
    from devlint.engine import check_bytes
    from devlint.findings import FileResult

    try:
        source, findings = check_bytes(path, data, settings)
        findings = visible(source, findings, settings)
        if not findings:
            return None
        if source is not None and fix and any(f.fix for f in findings):
            return _fixed(path, source, settings, unsafe)
        return FileResult(path, tuple(findings), source=source)
    except Exception as error:
        return FileResult(path, (internal_error(path, error),))


def visible(source: Source | None, findings: list[Finding], settings: Settings, *, noqa: bool = True) -> list[Finding]:
    """What of the engine's findings is to be reported: suppressed ones and those about devlint that are off go.

    Without `noqa`, only devlint's own comments suppress.
    """
    from devlint.config import META_RULES

    kept = [f for f in findings if f.code not in META_RULES or f.code in settings.enabled]
    if source is None:
        return kept
    lowered = source.text.lower()
    if "noqa" not in lowered and "devlint:" not in lowered:
        return kept
    from devlint import suppress

    return suppress.apply(source, kept, settings.enabled, noqa=noqa)


def internal_error(path: str, error: Exception) -> Finding:
    """TDL900 for a failure outside of any rule."""
    from devlint.engine import INTERNAL_ERROR
    from devlint.findings import Finding, Span

    text = f"devlint failed on this file with {type(error).__name__}: {error}; please report it with the file"
    return Finding(*INTERNAL_ERROR, text, Span(1, 0, 1, 1), path=path)


def _fixed(path: str, source: Source, settings: Settings, unsafe: bool) -> FileResult:
    from devlint.engine import check_source
    from devlint.findings import FileResult
    from devlint.fixes import fix_source
    from devlint.source import Source

    def check(source: Source) -> list[Finding]:
        return visible(source, check_source(source, settings), settings)

    result = fix_source(source, check, unsafe=unsafe)
    after = Source.from_text(result.text, path)
    after.bom, after.encoding = source.bom, source.encoding
    return FileResult(path, result.remaining, result.errors, result.applied, after)


def _write(result: FileResult, data: bytes, diff: bool, settings: Settings) -> FileResult:
    """Write the fixed source over the file that held `data`, or only tell the difference.

    Where that fails, the findings are those of the file as it is.
    """
    from dataclasses import replace

    from devlint.fixes import FileChanged, write_atomically
    from devlint.source import Source, SourceError

    assert result.source is not None
    if not result.fixed:
        return result
    try:
        fixed = result.source.encode(result.source.text)
        if diff:
            return replace(result, diff=difference(result.path, Source(result.path, data).text, result.source.text))
        write_atomically(result.path, fixed, data)
    except (OSError, SourceError, FileChanged) as error:
        reason = f"cannot be written: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        reason = reason.removeprefix(f"{result.path}: ")
        unfixed = check_data(result.path, data, settings) or replace(result, findings=(), fixed=())
        return replace(unfixed, errors=(*result.errors, f"{result.path}: {reason}; its fixes were not written"))
    return result


def difference(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, with the lines' own ends."""
    import difflib

    lines = difflib.unified_diff(_lines(before), _lines(after), path, path)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.split("\n")[-1]) else [])
