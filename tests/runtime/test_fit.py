"""fit: resumed training is uninterrupted training, bit for bit, wherever it was killed; evaluation, stopping, errors."""

import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)
from training_job import BATCHES, EPOCHS, Noisy, make_step, run

from devlint.runtime import DeviceLoader, History, TrainStep, fit, load_checkpoint
from devlint.runtime.checkpoint import CheckpointError

JOB = Path(__file__).with_name("training_job.py")


class Killed(BaseException):
    """Nothing in fit may catch it, as nothing can catch SIGKILL."""


def countdown(count: int) -> Callable[..., None]:
    left = count

    def watch(*_: Any, **__: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    return watch


def flat(value: Any) -> Any:
    """Tensors as what `==` can compare, bit for bit."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.flatten().tolist())
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    return [flat(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums are only equal bit for bit where they are split the same way as in the jobs that run on their own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole() -> tuple[History, Any]:
    history, step = run(None)
    assert len(history.epochs) == EPOCHS and history.steps == step.steps
    return history, flat(step.state_dict())


def test_checkpoints_change_nothing(whole: tuple[History, Any], tmp_path: Path) -> None:
    for every in (None, 1, 2):
        history, step = run(tmp_path / f"{every}.pt", every=every)
        assert (history, flat(step.state_dict())) == whole


@pytest.mark.parametrize("every", [None, 1, 2])
def test_killed_in_any_batch(whole: tuple[History, Any], tmp_path: Path, every: int | None) -> None:
    for batch in range(1, BATCHES * EPOCHS + 1):
        file = tmp_path / f"{batch}.pt"
        with pytest.raises(Killed):
            run(file, watch=countdown(batch), every=every)
        history, step = run(file, every=every)
        assert (history, flat(step.state_dict())) == whole, f"killed in batch {batch}"


@pytest.mark.parametrize("function", ["fsync", "link", "replace"])
def test_killed_while_saving(
    whole: tuple[History, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    kills = 0
    for call in range(1, 100):
        file = tmp_path / f"{call}.pt"
        real, watch = getattr(os, function), countdown(call)
        with monkeypatch.context() as patched:
            patched.setattr(os, function, lambda *args, real=real, watch=watch, **kw: (watch(), real(*args, **kw))[1])
            try:
                run(file, epochs=2)
            except Killed:
                kills += 1
            else:
                break
        history, step = run(file)
        assert (history, flat(step.state_dict())) == whole, f"killed in call {call} of {function}"
    assert kills >= 5


def test_killed_again_and_again(whole: tuple[History, Any], tmp_path: Path) -> None:
    """By SIGKILL, which leaves no time for anything."""
    file, result = tmp_path / "last.pt", tmp_path / "result.pt"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for kill_at in ("4", "7"):
        command = [sys.executable, str(JOB), str(file), str(result), kill_at]
        assert subprocess.run(command, env=environment, timeout=120).returncode == -signal.SIGKILL
        assert not result.exists()
    subprocess.run([sys.executable, str(JOB), str(file), str(result)], env=environment, timeout=120, check=True)
    found = torch.load(result, weights_only=True)
    assert (found["epochs"], flat(found["state"])) == (whole[0].epochs, whole[1])


def loaders() -> dict[str, Callable[[], Any]]:
    data = Noisy(BATCHES * 8)
    weights = [1.0] * len(data)

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(9)

    def several_workers(persistent: bool) -> Any:
        fixed = TensorDataset(data.inputs, data.targets)
        return DataLoader(fixed, 8, shuffle=True, num_workers=1, persistent_workers=persistent)

    return {
        "own generator": lambda: DataLoader(data, 8, shuffle=True, generator=generator()),
        "weighted": lambda: DataLoader(data, 8, sampler=WeightedRandomSampler(weights, 40, generator=generator())),
        "device loader": lambda: DeviceLoader(DataLoader(data, 8, shuffle=True), "cpu"),
        "workers": lambda: several_workers(False),
        "persistent workers": lambda: several_workers(True),
        "unknown length": lambda: DataLoader(Stream(data), 8),
    }


class Stream(IterableDataset[Any]):
    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        for index in torch.randperm(len(self.data) - 3).tolist():
            yield self.data[index]


@pytest.mark.parametrize("name", loaders())
def test_the_same_batches_from_any_loader(tmp_path: Path, name: str) -> None:
    make = loaders()[name]
    history, step = run(None, loader=make())
    expected = history, flat(step.state_dict())
    for batch in (3, BATCHES + 1, 2 * BATCHES + 4):
        file = tmp_path / f"{batch}.pt"
        with pytest.raises(Killed):
            run(file, watch=countdown(batch), loader=make())
        history, step = run(file, loader=make())
        assert (history, flat(step.state_dict())) == expected, f"killed in batch {batch}"


def test_a_damaged_checkpoint_gives_way_to_the_one_before(whole: tuple[History, Any], tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    _, step = run(file, epochs=2)
    content = file.read_bytes()
    weight = content.index(step.model[0].weight.detach().numpy().tobytes())
    flipped = content[:weight] + bytes([content[weight] ^ 1]) + content[weight + 1 :]
    for damaged in (content[:weight], flipped, b""):
        file.write_bytes(damaged)
        with pytest.warns(
            RuntimeWarning, match=r"checkpoint .*last\.pt is damaged .*; going on from .*last\.pt\.previous"
        ):
            history, step = run(file, epochs=2)
        assert history.epochs == whole[0].epochs[:2]
        assert load_checkpoint(file)["epoch"] == 2  # it was written anew, and the damaged one was not kept
        assert load_checkpoint(tmp_path / "last.pt.previous")["epoch"] <= 2
    history, step = run(file)
    assert (history, flat(step.state_dict())) == whole


def test_sigterm_saves_and_stops(whole: tuple[History, Any], tmp_path: Path) -> None:
    file, before = tmp_path / "last.pt", signal.getsignal(signal.SIGTERM)

    def terminate() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    for batch in (
        1,
        3,
        5,
        8,
        15,
    ):  # the first batch of a window; amid an epoch; in its last batch; later; in the very last
        left = batch
        history, step = run(tmp_path / f"{batch}.pt", watch=terminate, every=None)
        assert history.stopped is (batch != 15)
        assert signal.getsignal(signal.SIGTERM) is before
        history, step = run(tmp_path / f"{batch}.pt", every=None)
        assert (history, flat(step.state_dict())) == whole
    assert not file.exists()


def test_evaluation_leaves_no_trace() -> None:
    seen: list[tuple[bool, bool, bool]] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.frozen = nn.Linear(6, 3), nn.Dropout(0.9)
            self.frozen.eval()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.append((self.training, self.frozen.training, torch.is_inference_mode_enabled()))
            return self.frozen(self.body(inputs))

    model = Watched()
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    data = TensorDataset(torch.randn(10, 6), torch.randint(3, (10,)))
    history = fit(step, DataLoader(data, 5), epochs=2, eval_loader=DataLoader(data, 4), seed=1)
    training, evaluating = (True, False, False), (False, False, True)
    assert seen == ([training] * 2 + [evaluating] * 3) * 2
    assert (model.training, model.frozen.training) == (True, False)
    with torch.no_grad():
        expected = F.cross_entropy(model.body(data.tensors[0]), data.tensors[1])
    assert history["eval_loss"][-1] == pytest.approx(float(expected), rel=1e-6)  # over samples, not over batches

    def failing(outputs: Any, targets: Any) -> float:
        raise KeyError("metric")

    with pytest.raises(KeyError):
        fit(step, DataLoader(data, 5), epochs=1, eval_loader=DataLoader(data, 4), metrics={"bad": failing})
    assert (model.training, model.frozen.training) == (True, False)
    model.eval()
    fit(step, DataLoader(data, 5), epochs=1)
    assert model.training


def test_figures_are_means_over_samples() -> None:
    step = make_step("fp32", accumulate=1)
    data = TensorDataset(torch.randn(10, 6), torch.arange(10) % 3)
    metrics = {
        "each": lambda outputs, targets: targets.float(),
        "mean": lambda outputs, targets: targets.float().mean(),
        "number": lambda outputs, targets: float(targets.float().mean()),
    }
    history = fit(step, DataLoader(data, 5), epochs=1, eval_loader=DataLoader(data, 4), metrics=metrics)
    mean = sum(index % 3 for index in range(10)) / 10
    assert [history.epochs[0][f"eval_{name}"] for name in metrics] == pytest.approx([mean] * 3)
    assert set(history.epochs[0]) == {"epoch", "loss", "eval_loss", "eval_each", "eval_mean", "eval_number"}
    assert math.isfinite(history["loss"][0])


def test_samplers_are_told_the_epoch() -> None:
    data = Noisy(16)
    told: list[int] = []

    class Sampler(DistributedSampler[Any]):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)
            super().set_epoch(epoch)

    sampler = Sampler(data, 2, 0)
    for loader in (DataLoader(data, 4, sampler=sampler), DeviceLoader(DataLoader(data, 4, sampler=sampler), "cpu")):
        fit(make_step(), loader, epochs=3)
    batches = BatchSampler(sampler, 4, drop_last=False)
    fit(make_step(), DataLoader(data, batch_sampler=batches), epochs=1)
    assert told == [0, 1, 2, 0, 1, 2, 0]


def test_the_model_can_be_resumed_further(whole: tuple[History, Any], tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    for epochs in (0, 1, 1, 2, EPOCHS):
        history, step = run(file, epochs=epochs)
        assert len(history.epochs) == epochs
    assert (history, flat(step.state_dict())) == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs is -1"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"resume": True}, "resume without a checkpoint"),
        ({"checkpoint_every": 5}, "checkpoint_every without a checkpoint"),
        ({"checkpoint": "x.pt", "checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"metrics": {"a": lambda outputs, targets: 0.0}}, "metrics without eval_loader"),
        ({"loader": []}, "the loader gave no batches"),
        ({"loader": iter([1]), "epochs": 2}, "the loader is an iterator"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"loader": DataLoader(Noisy(8), 4), "epochs": 1, **options}
    with pytest.raises(ValueError, match=message):
        fit(make_step(), options.pop("loader"), **options)


def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    with pytest.raises(Killed):
        run(file, watch=countdown(5))
    with pytest.raises(ValueError, match="after 4 batches of an epoch, and the loader gives 3"):
        run(file, loader=DataLoader(Noisy(24), 8))
    model = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=40)
    with pytest.raises(CheckpointError, match=r"its 'step' does not fit TrainStep: (?s:.)*Missing key"):
        run(file, step=TrainStep(model, optimizer, F.cross_entropy, scheduler=scheduler))


class Terminal:
    """stderr, as a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(progress: bool | None, tty: bool) -> str:
        terminal = Terminal()
        monkeypatch.setattr(terminal, "isatty", lambda: tty)
        monkeypatch.setattr(sys, "stderr", terminal)
        fit(make_step(), DataLoader(Noisy(16), 8), epochs=2, progress=progress)
        return terminal.text

    pytest.importorskip("tqdm")
    text = shown(None, True)
    assert "epoch 1/2" in text and "epoch 2/2" in text and "2/2" in text and "loss=" in text
    assert shown(None, False) == shown(False, True) == ""
    assert "epoch 2/2" in shown(True, False)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert shown(None, True) == ""
    with pytest.raises(ValueError, match="progress=True needs tqdm"):
        shown(True, True)


def test_no_host_waits_but_at_the_end_of_an_epoch() -> None:
    from devlint.runtime import rehearse

    waits = []
    with rehearse("cuda") as report:
        for count in (4, 24):
            model = nn.Linear(6, 3).to("cuda")
            step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, precision="bf16")
            loader = DeviceLoader(
                DataLoader(TensorDataset(torch.randn(count, 6), torch.zeros(count).long()), 2), "cuda"
            )
            before = sum(sync.count for sync in report.syncs)
            metrics = {"accuracy": lambda outputs, targets: (outputs.argmax(1) == targets).float()}
            fit(step, loader, epochs=1, eval_loader=loader, metrics=metrics)
            waits.append(sum(sync.count for sync in report.syncs) - before)
    assert report.clean
    assert waits[0] == waits[1] <= 8


def test_warnings_of_the_scheduler_stay_away(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path / "last.pt", epochs=1)
