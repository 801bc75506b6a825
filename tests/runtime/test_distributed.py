"""Two processes train as one does; joining them, and what is said when that cannot be."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from devlint.runtime import Dist, distributed

JOB = Path(__file__).with_name("ddp_job.py")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start(folder: Path, world_size: int) -> list[dict[str, Any]]:
    """Run the job in several processes, as torchrun would, and give the results by rank."""
    port = str(free_port())
    running = []
    for rank in range(world_size):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        if world_size > 1:
            environment.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(world_size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
        command = [sys.executable, "-W", "error::UserWarning:devlint", str(JOB), str(folder)]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    outcomes = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    assert [code for _, code in outcomes] == [0] * world_size, "\n".join(text for text, _ in outcomes)
    return [torch.load(folder / f"result-{world_size}-{rank}.pt", weights_only=True) for rank in range(world_size)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ddp")
    return start(folder, 1)[0], start(folder, 2)


@pytest.mark.parametrize("name", ["sized", "unsized", "unused"])
def test_two_processes_equal_one(results: tuple[dict[str, Any], list[dict[str, Any]]], name: str) -> None:
    one, two = results
    for result in two:
        assert result[name][1] == one[name][1] == (2 if name == "unused" else 4)
        torch.testing.assert_close(result[name][2], one[name][2], rtol=1e-5, atol=1e-6)
        for mine, expected in zip(result[name][0], one[name][0], strict=True):
            assert mine == pytest.approx(expected, rel=1e-5)
        for first, second in zip(two[0][name][2].values(), result[name][2].values(), strict=True):
            assert torch.equal(first, second)


def test_figures_are_over_all_processes(results: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    one, two = results
    assert one["mean"] == 1.5
    assert [result["mean"] for result in two] == [(6 + 46 * 2) / (4 + 4 * 2)] * 2


def test_sigterm_in_one_process_stops_all_and_is_resumed(
    results: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    for result in results[1]:
        stopped, epochs, steps = result["stopped"]
        assert (stopped, epochs, steps) == (True, 1, 4 + 2)  # one step after the signal
        assert result["resumed"] == [True, True]
    assert results[1][0]["stopped"] == results[1][1]["stopped"]


def test_the_sampler_is_told_the_epoch(results: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    first, second = results[1][0]["indices"]
    for epoch in range(2):
        assert sorted(first[epoch] + second[epoch]) == list(range(40))
    assert first[0] != first[1] and second[0] != second[1]


def test_who_they_are(results: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    one, two = results
    assert one["who"] == [0, 0, 1, "cpu", True]
    assert [result["who"] for result in two] == [[0, 0, 2, "cpu", True], [1, 1, 2, "cpu", False]]


def test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    model = nn.Linear(2, 2)
    with distributed(device="cpu") as dist:
        assert dist == Dist(0, 0, 1, torch.device("cpu"))
        assert dist.wrap(model) is model
    assert not torch.distributed.is_initialized()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert distributed(device="cpu").world_size == 1


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set; start with torchrun"),
        (
            {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"},
            "WORLD_SIZE is 2, but MASTER_PORT is not set",
        ),
    ],
)
def test_a_bad_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        distributed(device="cpu")
