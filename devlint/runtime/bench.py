"""``python -m devlint.runtime.bench``: what each way of getting samples to the device costs on this machine.

Prints a Markdown table and, where matplotlib is installed, draws it: lines of code, samples a second of a small
training step, peak memory on the device, copies and host waits a batch. The last two are counted in a rehearsal, so
they hold for CUDA even where there is none.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from devlint.runtime import bench_ways
from devlint.runtime.device import best_device
from devlint.runtime.errors import DeviceUnavailableError


@dataclass(frozen=True)
class Settings:
    """What to run: ``samples`` of ``features`` float32 numbers each, through a perceptron ``hidden`` wide."""

    device: torch.device
    samples: int = 8192
    features: int = 3 * 64 * 64
    hidden: int = 64
    batch_size: int = 64
    workers: int = 0
    repeats: int = 3


@dataclass(frozen=True)
class Row:
    """One way's figures; None where a figure cannot be had. ``failed`` says why a way did not run at all."""

    title: str
    lines: int
    samples_per_second: float | None = None
    spread: tuple[float, float] | None = None
    peak_mib: float | None = None
    copies: float | None = None
    waits: float | None = None
    failed: str = ""


def measure(settings: Settings) -> list[Row]:
    """Run every way: one untimed epoch, then ``repeats`` timed ones, the ways taking turns."""
    torch.manual_seed(0)
    inputs = torch.randn(settings.samples, settings.features)
    dataset = TensorDataset(inputs, torch.randint(10, (settings.samples,)))
    times: dict[bench_ways.Way, list[float]] = {way: [] for way in bench_ways.WAYS}
    peaks: dict[bench_ways.Way, float | None] = {}
    failed: dict[bench_ways.Way, str] = {}
    for turn in range(settings.repeats + 1):
        for way in bench_ways.WAYS:
            if way in failed:
                continue
            try:
                took, peak = _epoch(way, dataset, settings)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                failed[way] = str(error).splitlines()[0]
                continue
            if turn:
                times[way].append(took)
            peaks[way] = peak
    rows = []
    for way in bench_ways.WAYS:
        name, lines = bench_ways.title(way), bench_ways.lines_of(way)
        copies, waits = rehearsed(way)
        if way in failed:
            rows.append(Row(name, lines, copies=copies, waits=waits, failed=failed[way]))
            continue
        rates = sorted(settings.samples / took for took in times[way])
        rows.append(
            Row(name, lines, statistics.median(rates), (rates[0], rates[-1]), peaks[way], copies=copies, waits=waits)
        )
    return rows


def _model(features: int, hidden: int, device: torch.device | str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def _train(batches: bench_ways.Batches, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    count = 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        count += 1
    return count


def _epoch(way: bench_ways.Way, dataset: Any, settings: Settings) -> tuple[float, float | None]:
    """Seconds for one epoch, from the first request for a batch, and the peak MiB on the device."""
    backend: Any = getattr(torch, settings.device.type, None)
    gc.collect()
    model, optimizer = _model(settings.features, settings.hidden, settings.device)
    counts_memory = hasattr(backend, "reset_peak_memory_stats")
    if counts_memory:
        backend.reset_peak_memory_stats(settings.device)
    batches = way(dataset, settings.device, settings.batch_size, settings.workers)
    _wait(backend)
    start = time.perf_counter()
    _train(batches, model, optimizer)
    _wait(backend)
    took = time.perf_counter() - start
    peak = backend.max_memory_allocated(settings.device) / 2**20 if counts_memory else None
    return took, peak


def _wait(backend: Any) -> None:
    synchronize = getattr(backend, "synchronize", None)
    if synchronize is not None:
        synchronize()


def rehearsed(way: bench_ways.Way) -> tuple[float | None, float | None]:
    """Copies to the device, and times that the host waits, for each batch of a rehearsal on CUDA.

    Waits are host syncs and blocking copies. What is copied before the first batch counts, too. None where the
    rehearsal does not work with this torch.
    """
    from devlint.runtime._rehearse import RehearsalUnavailable, RehearsalUnsupported, rehearse

    dataset = TensorDataset(torch.zeros(64, 8), torch.zeros(64, dtype=torch.long))
    try:
        with rehearse("cuda") as report:
            model, optimizer = _model(8, 8, "cuda")
            before = sum(move.count for move in report.transfers)
            batches = _train(way(dataset, torch.device("cuda:0"), 8, 0), model, optimizer)
    except (RehearsalUnavailable, RehearsalUnsupported, RuntimeError):
        return None, None
    moves = sum(move.count for move in report.transfers if move.direction == "H2D") - before
    blocking = sum(move.count for move in report.transfers if not move.non_blocking) - before
    return moves / batches, (blocking + sum(sync.count for sync in report.syncs)) / batches


def heading(settings: Settings) -> str:
    """What ran where; says plainly what a run without an accelerator can show."""
    device = settings.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    size = settings.samples * (settings.features * 4 + 8) / 2**20
    text = (
        f"{settings.samples} samples of {settings.features} float32 ({size:.0f} MiB), batches of {settings.batch_size}, "
        f"{settings.workers} workers, on {device} ({name}), torch {torch.__version__}; median of {settings.repeats} "
        "epochs, least and most in brackets."
    )
    if device.type == "cpu":
        text += (
            "\n\nThere is no accelerator in this run: nothing is copied, so it cannot show what transfers, pinning and "
            "prefetching cost or save. Its rates still show what each way costs in Python and collation. Copies and "
            "host waits a batch are those of a rehearsal, and hold for CUDA."
        )
    return text


def markdown(settings: Settings, rows: Sequence[Row]) -> str:
    """The heading and the table."""
    lines = [
        heading(settings),
        "",
        "| way | lines | samples/s | peak MiB on the device | copies a batch | host waits a batch |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.samples_per_second is None or row.spread is None:
            rate = f"not run: {row.failed}"
        else:
            rate = f"{row.samples_per_second:,.0f} ({row.spread[0]:,.0f}–{row.spread[1]:,.0f})"
        cells = (row.peak_mib, row.copies, row.waits)
        rest = " | ".join("–" if cell is None else f"{cell:,.1f}" for cell in cells)
        lines.append(f"| {row.title} | {row.lines} | {rate} | {rest} |")
    return "\n".join(lines) + "\n"


def plot(settings: Settings, rows: Sequence[Row], file: Path) -> bool:
    """Draw rates and host waits as bars into a PNG; False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(11, 0.5 * len(rows) + 1.8), layout="constrained")
    FigureCanvasAgg(figure)
    rate, waits = figure.subplots(1, 2, sharey=True)
    places = range(len(rows))
    titles = [row.title for row in rows]
    rates = [row.samples_per_second or 0.0 for row in rows]
    low = [rate - row.spread[0] if row.spread else 0.0 for rate, row in zip(rates, rows, strict=True)]
    high = [row.spread[1] - rate if row.spread else 0.0 for rate, row in zip(rates, rows, strict=True)]
    rate.barh(places, rates, xerr=[low, high], color="#4878a8", ecolor="#333333", capsize=3)
    for place, row in zip(places, rows, strict=True):
        if row.samples_per_second is None:
            rate.text(0, place, " not run on this device", va="center", color="#777777")
    rate.set_yticks(places, titles)
    rate.invert_yaxis()
    rate.set_xlabel(f"samples/s on {settings.device}, median; whiskers: least and most")
    waits.barh(places, [row.waits or 0.0 for row in rows], color="#b0654a")
    for place, row in zip(places, rows, strict=True):
        waits.text(row.waits or 0.0, place, " –" if row.waits is None else f" {row.waits:g}", va="center")
    waits.margins(x=0.12)
    waits.set_xlabel("host waits a batch of 8 on CUDA, rehearsed")
    for axes in (rate, waits):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    figure.suptitle("Getting samples to the device")
    figure.savefig(str(file), dpi=110)
    return True


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; 0, or 2 if the device cannot be used or a file cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m devlint.runtime.bench", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--device", help="default: the accelerator there is, or the CPU")
    parser.add_argument("--samples", type=_positive, default=Settings.samples)
    parser.add_argument("--features", type=_positive, default=Settings.features, help="float32 numbers in a sample")
    parser.add_argument("--hidden", type=_positive, default=Settings.hidden, help="width of the trained perceptron")
    parser.add_argument("--batch-size", type=_positive, default=Settings.batch_size)
    parser.add_argument("--workers", type=int, default=Settings.workers, help="loader processes (default 0)")
    parser.add_argument("--repeats", type=_positive, default=Settings.repeats, help="timed epochs of each way")
    parser.add_argument("--quick", action="store_true", help="few small samples, one epoch: to see that it runs")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; a PNG beside it with --plot's default")
    parser.add_argument("--plot", type=Path, help="a PNG file to draw (needs matplotlib)")
    options = parser.parse_args(argv)
    if options.workers < 0:
        parser.error("--workers must be a number from 0")
    try:
        device = best_device(options.device)
    except (DeviceUnavailableError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    sizes = (512, 256, 1) if options.quick else (options.samples, options.features, options.repeats)
    settings = Settings(device, sizes[0], sizes[1], options.hidden, options.batch_size, options.workers, sizes[2])
    rows = measure(settings)
    table = markdown(settings, rows)
    print(table)
    picture = options.plot or (options.output.with_suffix(".png") if options.output else None)
    try:
        if options.output:
            options.output.write_text(table, encoding="utf-8")
        if picture and not plot(settings, rows, picture):
            print("bench: no plot, for that takes matplotlib", file=sys.stderr)
    except OSError as error:
        print(f"bench: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
