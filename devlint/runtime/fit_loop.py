"""The loop around a TrainStep: epochs, evaluation, checkpoints, resuming, stopping, progress."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from devlint.runtime.checkpoint import CheckpointError, exists, load_checkpoint, save_checkpoint
from devlint.runtime.dist import world
from devlint.runtime.evaluation import Metric, batch_size, evaluated
from devlint.runtime.metrics import Mean
from devlint.runtime.position import Position, length
from devlint.runtime.seeding import random_state, seed_everything, set_random_state
from devlint.runtime.stopping import Stopper
from devlint.runtime.train import TrainStep


@dataclass
class History:
    """What a fit did.

    Attributes:
        epochs: for each whole epoch ``{"epoch": 1, "loss": …, "eval_loss": …, "eval_<metric>": …}``. ``loss`` is the
            mean over the epoch's samples, while the model changed.
        stopped: whether SIGTERM ended it early.
        steps: of the optimizer, since training began.
        skipped: steps whose gradients were not finite.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: bool = False
    steps: int = 0
    skipped: int = 0

    def __getitem__(self, name: str) -> list[float]:
        """One figure over the epochs: ``history["eval_loss"]``."""
        return [epoch[name] for epoch in self.epochs]


def fit(
    step: TrainStep,
    loader: Iterable[Any],
    *,
    epochs: int,
    eval_loader: Iterable[Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
    seed: int | None = None,
) -> History:
    """Train for a number of epochs.

    The loss is added up on the device and read once an epoch. A window of accumulated batches never spans two epochs.
    Evaluation runs after each epoch, under ``inference_mode``, with all modules in evaluation mode; their modes and the
    random state are put back after it.
    ``DistributedSampler.set_epoch`` is called. With several processes (``distributed()``), all call this; figures are
    over all of them, and rank 0 writes and shows progress.

    With a checkpoint, the state after each epoch is saved, and SIGTERM saves after the step that is being made, and
    stops. Training that is resumed from it goes on exactly as it would have: the same batches in the same order, the
    same random numbers; on the CPU the same bits. To that end the batches of an interrupted epoch that were used
    are read again and dropped. Not repeated are random numbers drawn within persistent loader workers.

    Args:
        step: holds model, optimizer and so on; see TrainStep. A model in evaluation mode is put into training mode.
        loader: of training batches; iterated once an epoch.
        epochs: how many in all, those before resuming included.
        eval_loader: of evaluation batches, in the same form.
        metrics: by name, ``metric(outputs, targets)``: a tensor of one value a sample, or one value for the batch that
            is a mean over it. They stay on the device until the end of the evaluation.
        checkpoint: a file.
        checkpoint_every: also save after every so many steps of the optimizer.
        resume: go on from the checkpoint if there is one, else begin.
        progress: a progress bar; None shows one if tqdm is installed and stderr is a terminal.
        seed: ``seed_everything(seed + rank)`` at the beginning.

    Returns:
        a History; equal to that of a run without interruption, when resumed to the end.

    Raises:
        ValueError: for ``epochs < 0``, ``checkpoint_every < 1``, these or ``resume`` without a checkpoint, ``metrics``
            without ``eval_loader``, ``progress=True`` without tqdm, a loader without batches, or one that can only be
            iterated once for several epochs.
        CheckpointError: if the checkpoint does not fit or cannot be read.
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise ValueError(f"fit: epochs is {epochs!r}; it must be a number from 0")
    if checkpoint is None and (resume or checkpoint_every is not None):
        option = "resume" if resume else "checkpoint_every"
        raise ValueError(f"fit: {option} without a checkpoint; say which file: checkpoint='last.pt'")
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ValueError(f"fit: checkpoint_every is {checkpoint_every!r}; it must be a number of steps from 1")
    if metrics and eval_loader is None:
        raise ValueError("fit: metrics without eval_loader; they are computed over evaluation batches")
    if epochs > 1 and isinstance(loader, Iterator):
        raise ValueError("fit: the loader is an iterator, which is used up after one epoch; pass a loader")
    if seed is not None:
        seed_everything(seed + world()[0])
    if not step.model.training:
        step.model.train()
    file = None if checkpoint is None else Path(checkpoint)
    with Stopper(enabled=file is not None) as stopper:
        loop = _Loop(step, loader, epochs, file, checkpoint_every, stopper)
        if resume:
            loop.load()
        with _Bar(progress, epochs, loop.position.loader) as bar:
            return loop.run(eval_loader, metrics or {}, bar)


class _Loop:
    """A fit in progress."""

    def __init__(
        self, step: TrainStep, loader: Any, epochs: int, file: Path | None, every: int | None, stopper: Stopper
    ) -> None:
        self.step = step
        self.epochs = epochs
        self.file = file
        self.every = every
        self.stopper = stopper
        self.position = Position(loader, step.device)
        self.loss = Mean()
        self.epoch = 0
        self.history = History()
        self._resumed: dict[str, Any] | None = None  # the position to begin the first epoch at

    def run(self, eval_loader: Any, metrics: Mapping[str, Metric], bar: _Bar) -> History:
        while self.epoch < self.epochs and not self.history.stopped:
            self._train_epoch(bar)
            if self.history.stopped:
                break
            figures = {"epoch": float(self.epoch + 1), "loss": self.loss.compute(reduce=True)}
            if eval_loader is not None:
                before = random_state(self.step.device)  # so that evaluating more or less often changes no training
                figures.update(evaluated(self.step, eval_loader, metrics))
                set_random_state(before, self.step.device)
            self.history.epochs.append(figures)
            self.epoch += 1
            self.loss.reset()
            self.position.batch = 0
            self.save()
            bar.show(figures)
            self.history.stopped = self.stopper.agreed() and self.epoch < self.epochs
        self.history.steps, self.history.skipped = self.step.steps, self.step.skipped
        return self.history

    def _train_epoch(self, bar: _Bar) -> None:
        if self._resumed is not None:
            batches = self.position.resume(self.epoch, self._resumed)
            self._resumed = None
        else:
            batches = self.position.begin(self.epoch)
        total = length(self.position.loader)
        bar.begin(self.epoch, self.position.batch)
        for batch in batches:
            self.position.batch += 1
            result = self.step(batch, last=self.position.batch == total)
            self.loss.update(result.loss, batch_size(batch))
            bar.advance()
            if not self.step.pending and self.position.batch != total and self._pause():
                self.history.stopped = True
                return
        self.step.flush()
        if self.position.batch == 0:
            raise ValueError("fit: the loader gave no batches: an empty data set, or drop_last with too few samples")

    def _pause(self) -> bool:
        """Between two steps: save if it is time to; True to stop."""
        stop = self.stopper.agreed()
        if stop or (self.every is not None and self.step.steps % self.every == 0):
            self.save()
        return stop

    def save(self) -> None:
        """Write a checkpoint, in rank 0, of all ranks."""
        if self.file is None:
            return
        mine = {
            "random": random_state(self.step.device),
            "generators": self.position.generators(),
            "position": self.position.state_dict() if self.position.batch else None,
            "loss": self.loss.state_dict(),
        }
        rank, size = world()
        ranks: list[Any] = [mine]
        if size > 1:
            ranks = [None] * size
            torch.distributed.all_gather_object(ranks, mine)
        state = self.step.state_dict()
        if rank == 0:
            save_checkpoint(self.file, step=state, epoch=self.epoch, history=self.history.epochs, ranks=ranks)

    def load(self) -> None:
        """Go on from the checkpoint, if there is one."""
        assert self.file is not None
        if not exists(self.file):
            return
        rest = load_checkpoint(self.file, step=self.step)
        missing = [name for name in ("epoch", "history", "ranks") if name not in rest]
        if missing:
            raise CheckpointError(f"{self.file} has no {', '.join(missing)}: it was not written by fit")
        self.epoch = rest["epoch"]
        self.history.epochs = rest["history"]
        rank, size = world()
        ranks = rest["ranks"]
        if len(ranks) != size:
            if ranks[0]["position"] is not None:
                raise CheckpointError(
                    f"{self.file} was made within an epoch by {len(ranks)} processes, and there are {size} now, which "
                    "share the data in another way; resume with as many, or from a checkpoint made after an epoch"
                )
            warnings.warn(
                f"{self.file} was made by {len(ranks)} processes, and there are {size} now: random numbers differ",
                stacklevel=3,
            )
            if rank >= len(ranks):
                return
        mine = ranks[rank]
        if self.epoch > 0:
            self.position.start_persistent_workers()
        set_random_state(mine["random"], self.step.device)
        self.position.load_generators(mine)
        self.loss.load_state_dict(mine["loss"], self.step.device)
        self._resumed = mine["position"]


class _Bar:
    """A progress bar over the batches of an epoch, where one is wanted and can be had."""

    def __init__(self, wanted: bool | None, epochs: int, loader: Any) -> None:
        self._tqdm: Any = None
        self._bar: Any = None
        self._epochs = epochs
        self._total = length(loader)
        if wanted is False or world()[0] != 0 or (wanted is None and not sys.stderr.isatty()):
            return
        try:
            from tqdm import tqdm
        except ImportError:
            if wanted:
                raise ValueError("fit: progress=True needs tqdm: pip install tqdm") from None
        else:
            self._tqdm = tqdm

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, epoch: int, batch: int) -> None:
        if self._tqdm is not None:
            if self._bar is not None:
                self._bar.close()
            name = f"epoch {epoch + 1}/{self._epochs}"
            self._bar = self._tqdm(desc=name, total=self._total, initial=batch, unit="batch", dynamic_ncols=True)

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def show(self, figures: Mapping[str, float]) -> None:
        if self._bar is not None:
            self._bar.set_postfix({name: f"{value:.4g}" for name, value in figures.items() if name != "epoch"})
