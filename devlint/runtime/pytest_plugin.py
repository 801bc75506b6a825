"""pytest plugin: a project's own GPU tests under CUDA's device rules, on a machine without a GPU.

``pytest --rehearse`` runs each test inside a rehearsal; the fixture ``devlint_rehearse`` does so for one test and
gives it the report. torch is imported when one of them is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from devlint.runtime._rehearse.report import Report

_REPORT = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rehearse`` and ``--rehearse-count``."""
    group = parser.getgroup("devlint")
    group.addoption(
        "--rehearse",
        nargs="?",
        const="cuda",
        default=None,
        metavar="DEVICE",
        choices=("cuda", "xpu", "mps"),
        help="run every test on a rehearsed device (default cuda): real values on the CPU, the device's own errors",
    )
    group.addoption("--rehearse-count", type=int, default=1, metavar="N", help="number of rehearsed devices")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a count that makes no sense."""
    if config.getoption("--rehearse-count") < 1:
        raise pytest.UsageError("--rehearse-count must be at least 1")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """With ``--rehearse``, set up, call and tear down each test inside one rehearsal."""
    device = item.config.getoption("--rehearse")
    if device is None:
        return (yield)
    from devlint.runtime._rehearse import rehearse

    with rehearse(device, item.config.getoption("--rehearse-count")) as report:
        item.stash[_REPORT] = report
        return (yield)


@pytest.fixture
def devlint_rehearse(request: pytest.FixtureRequest) -> Iterator[Report]:
    """The report of a rehearsed CUDA device that lasts as long as the test."""
    running = request.node.stash.get(_REPORT, None)
    if running is not None:
        yield running
        return
    from devlint.runtime._rehearse import rehearse

    with rehearse("cuda", request.config.getoption("--rehearse-count")) as report:
        yield report
