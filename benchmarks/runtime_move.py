"""What to_device costs: against the move written by hand and against accelerate's, as ratios in one run.

    python benchmarks/runtime_move.py

Moves to ``meta``, so that only the walking is measured. Each figure is the least CPU time of many short, interleaved
repeats. Also prints what ``import devlint.runtime`` and its names cost on top of ``import torch``. Rows whose package
is not installed are left out.
"""

import argparse
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch

from devlint.runtime import to_device

DEVICE = torch.device("meta")


def zeros() -> torch.Tensor:
    return torch.zeros(2)


def pair_by_hand(batch: Any) -> Any:
    return batch[0].to(DEVICE, non_blocking=True), batch[1].to(DEVICE, non_blocking=True)


def nested_by_hand(batch: Any) -> Any:
    first, second = batch["c"]["d"]
    return {
        "a": batch["a"].to(DEVICE, non_blocking=True),
        "b": [item.to(DEVICE, non_blocking=True) for item in batch["b"]],
        "c": {"d": (first.to(DEVICE, non_blocking=True), second.to(DEVICE, non_blocking=True))},
    }


def list_by_hand(batch: Any) -> Any:
    return [item.to(DEVICE, non_blocking=True) for item in batch]


def movers() -> dict[str, Callable[[Any], Any]]:
    found: dict[str, Callable[[Any], Any]] = {"devlint": lambda batch: to_device(batch, DEVICE)}
    try:
        from accelerate.utils import send_to_device

        found["accelerate"] = lambda batch: send_to_device(batch, DEVICE, non_blocking=True)
    except ImportError:
        pass
    from torch.utils import _pytree

    def move(item: Any) -> Any:
        return item.to(DEVICE, non_blocking=True) if isinstance(item, torch.Tensor) else item

    found["torch pytree"] = lambda batch: _pytree.tree_map(move, batch)
    return found


def least(functions: dict[str, Callable[[], Any]], number: int, repeats: int) -> dict[str, float]:
    """Microseconds a call: the least of the repeats."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            took = timeit.timeit(function, number=number, timer=time.process_time) / number
            best[name] = min(best[name], took * 1e6)
    return best


def import_cost(repeats: int = 5) -> float:
    """Milliseconds that devlint.runtime and the moving part of it take on top of torch, by the median."""
    names = "to_device, DeviceLoader, make_loader, guard_devices, explain_device_errors, best_device"
    program = (
        f"import time, torch, torch.utils.data; a = time.perf_counter(); from devlint.runtime import {names}; "
        "print((time.perf_counter() - a) * 1e3)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(repeats)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to_device against others.")
    parser.add_argument("--repeats", type=int, default=60, help="interleaved repeats of each (default 60)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    nested = {"a": zeros(), "b": [zeros(), zeros()], "c": {"d": (zeros(), zeros())}}
    cases = (
        ("(x, y)", (zeros(), zeros()), pair_by_hand, 1500),
        ("5 tensors, nested", nested, nested_by_hand, 500),
        ("list of 200", [zeros() for _ in range(200)], list_by_hand, 15),
    )
    others = movers()
    print(f"| batch | by hand, µs | {' | '.join(others)} |")
    print("|---|---|" + "---|" * len(others))
    for title, batch, by_hand, number in cases:
        functions: dict[str, Callable[[], Any]] = {"hand": lambda by_hand=by_hand, batch=batch: by_hand(batch)}
        for name, mover in others.items():
            functions[name] = lambda mover=mover, batch=batch: mover(batch)
        best = least(functions, number, repeats)
        ratios = " | ".join(f"{best[name] / best['hand']:.2f} ×" for name in others)
        print(f"| {title} | {best['hand']:.2f} | {ratios} |")
    print(f"\nimport devlint.runtime and six of its names, after torch: {import_cost():.0f} ms")


if __name__ == "__main__":
    main()
