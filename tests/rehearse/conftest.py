"""Fixtures of the rehearsal's tests."""

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from devlint.runtime._rehearse import Report, rehearse  # noqa: E402


@pytest.fixture
def verdict() -> Callable[[Callable[[], object]], tuple[str, Report, Exception | None]]:
    """Runs a function on two rehearsed GPUs; gives ``ok``, ``sync`` or ``error``, the report and the error."""

    def run(body: Callable[[], object]) -> tuple[str, Report, Exception | None]:
        torch.manual_seed(0)
        error: Exception | None = None
        with_report: list[Report] = []
        try:
            with rehearse("cuda", count=2) as report:
                with_report.append(report)
                body()
        except Exception as raised:
            error = raised
        found = with_report[0]
        return ("error" if error else "sync" if found.syncs else "ok"), found, error

    return run


@pytest.fixture
def cuda() -> Iterator[Report]:
    """A rehearsed CUDA device for the whole test."""
    with rehearse("cuda") as report:
        yield report
