"""A run: files checked, and fixed where that is asked for, in one process or several, the results in order."""

from __future__ import annotations

import os

from devlint.files import explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from devlint.config import Config, Configs
    from devlint.findings import FileResult, Finding
    from devlint.settings import Settings
    from devlint.source import Source

_WORTH_FORKING = 60
"""Files below which starting another process costs more than it saves."""


def run(files: Sequence[str], configs: Configs, jobs: int | None, *, diff: bool = False) -> list[FileResult]:
    """The results of the files that have anything to say, in the order of `files`, however many `jobs` there are.

    Raises UsageError for a configuration that is wrong.
    """
    for folder in sorted({os.path.dirname(os.path.abspath(file)) for file in files}):
        configs.for_folder(folder)

    def work(file: str) -> FileResult | None:
        return check_file(file, configs.for_file(file), diff=diff)

    wanted = jobs if jobs is not None else _processors() if len(files) >= _WORTH_FORKING else 1
    wanted = min(wanted, len(files))
    if wanted > 1 and hasattr(os, "fork"):
        from devlint.parallel import fork_map

        return [result for result in fork_map(work, files, wanted) if result is not None]
    return [result for result in map(work, files) if result is not None]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_file(path: str, config: Config, *, diff: bool = False) -> FileResult | None:
    """Check the file at `path`, and mend it where the configuration says so; None where there is nothing to say."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        from devlint.findings import FileResult

        return FileResult(path, errors=(explain(path, error),))
    if b"torch" not in data and b"\0" not in data:
        return None
    wants_fix = diff or config.flag("fix")
    result = check_data(path, data, config.settings(path), fix=wants_fix, unsafe=config.flag("unsafe-fixes"))
    if result is None or not wants_fix or result.source is None:
        return result
    return _write(result, data, diff)


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


def _write(result: FileResult, data: bytes, diff: bool) -> FileResult:
    """Write the fixed source over the file that held `data`, or only tell the difference."""
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
        reason = explain(result.path, error) if isinstance(error, OSError) else str(error)
        reason = reason if reason.startswith(result.path) else f"{result.path}: {reason}"
        return replace(result, errors=(*result.errors, f"{reason}; its fixes were not written"), fixed=())
    return result


def difference(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, with the lines' own ends."""
    import difflib

    lines = difflib.unified_diff(_lines(before), _lines(after), path, path)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.split("\n")[-1]) else [])
