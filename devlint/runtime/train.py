"""One training step, in the order that is right: for any precision, with accumulation, clipping and a scheduler."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from devlint.runtime import nonfinite
from devlint.runtime.dist import average_gradients, unwrap
from devlint.runtime.move import to_device
from devlint.runtime.precision_policy import Precision
from devlint.runtime.precision_policy import precision as make_precision
from devlint.runtime.train_parts import check_parts, device_of, needs_closure

_POLICIES = ("skip", "raise", "ignore")


@dataclass(frozen=True)
class StepResult:
    """What one call of a TrainStep did. Tensors are detached and stay on the device: reading them waits for it.

    Attributes:
        loss: 0-dim, of this batch, neither scaled nor divided.
        outputs: what the model returned, detached if it is a tensor.
        targets: what the loss compared them with.
        stepped: whether the optimizer was stepped: False while gradients accumulate, and for a skipped step.
        grad_norm: 0-dim, the total norm before clipping; None without ``clip_norm`` or before the window is full.
        finite: 0-dim bool, whether all gradients were finite; None where that was not looked at.
    """

    loss: torch.Tensor
    outputs: Any
    targets: Any
    stepped: bool
    grad_norm: torch.Tensor | None = None
    finite: torch.Tensor | None = None


class _Skip(Exception):
    """The first evaluation of a closure is not finite."""


class TrainStep:
    """Calling it with a batch trains on that batch.

    A window is ``accumulate`` batches. It begins with ``zero_grad`` (to None); each batch is moved, run forward under
    autocast, and its loss, divided by ``accumulate`` and scaled, run backward; on the last batch gradients are
    unscaled, checked, clipped, the optimizer stepped, the scale updated, the scheduler stepped. The host does not wait
    for the device in all this, but for once with float16 (the scaler does), and once with ``on_nonfinite="raise"``.

    Args:
        model: on its device; may be wrapped in DistributedDataParallel (gradients are then exchanged on the last
            batch of a window only) or compiled. Its mode, train or eval, is left as it is.
        optimizer: any of torch's kind. One that needs a closure (LBFGS) works without float16 and accumulation.
        loss_fn: ``loss_fn(outputs, targets)``, a tensor with one element: a mean over the batch.
        forward: ``forward(model, batch)``, giving ``(outputs, targets)``. None is for batches that are a pair:
            ``model(batch[0]), batch[1]``.
        device: None is the model's.
        precision: ``"auto"``, ``"fp32"``, ``"bf16"``, ``"fp16"``, or a Precision.
        accumulate: batches in a window. A shorter last one is rescaled to be a mean, too: see ``flush``.
        clip_norm: largest 2-norm of all the optimizer's gradients together, after unscaling.
        scheduler: stepped after each step of the optimizer, so count its epochs in steps; not after a skipped step.
        on_nonfinite: what to do when a gradient is infinite or NaN. ``"raise"``: FloatingPointError, before anything
            is changed. ``"ignore"``: do not look. ``"skip"``: leave the step out; exactly, on the CPU, with float16 and
            with fused optimizers. Elsewhere that would make the host wait in every step, so the step is made with
            zero gradients: weight decay and momentum still act. With float16 the scaler skips whatever this says,
            and ``"raise"`` is for a loss that is not finite, as its gradients overflow in normal use.

    Raises:
        ValueError: on making: ``accumulate < 1``, ``clip_norm <= 0``, a closure optimizer with float16 or accumulation,
            float16 parameters with float16 precision, a scheduler that wants a metric or has another optimizer. On
            calling: a loss with more than one element, or that no parameter takes part in.
        TypeError: if ``loss_fn`` returns no tensor, or a batch is not a pair and there is no ``forward``.
        FloatingPointError: with ``"raise"``, naming the parameters.
        DeviceMismatchError: if ``device`` is not the model's.

    Source: the automatic mixed precision examples, `DistributedDataParallel.no_sync` in the PyTorch documentation.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        *,
        forward: Callable[[torch.nn.Module, Any], tuple[Any, Any]] | None = None,
        device: torch.device | str | None = None,
        precision: str | Precision = "auto",
        accumulate: int = 1,
        clip_norm: float | None = None,
        scheduler: Any = None,
        on_nonfinite: Literal["skip", "raise", "ignore"] = "skip",
    ) -> None:
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(f"TrainStep: accumulate is {accumulate!r}; it must be a number of batches from 1")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"TrainStep: clip_norm is {clip_norm!r}; it must be above 0, or None for no clipping")
        if on_nonfinite not in _POLICIES:
            raise ValueError(f"TrainStep: on_nonfinite is {on_nonfinite!r}; it must be one of {', '.join(_POLICIES)}")
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.forward = forward or _pair
        self.device = device_of(model, device)
        self.precision = precision if isinstance(precision, Precision) else make_precision(precision, self.device)
        self.accumulate = accumulate
        self.clip_norm = clip_norm
        self.scheduler = scheduler
        self.on_nonfinite = on_nonfinite
        self.steps = 0
        self._scaler = self.precision.scaler
        self._scale_before: Any = None
        self._pending = 0  # batches in the window so far
        self._unreduced = False  # whether one of them was run under no_sync
        self._skipped = 0
        self._blanked: torch.Tensor | None = None  # steps made with zero gradients, counted on the device
        self._fused = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        self._closure = needs_closure(optimizer)
        self._distributed = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self._ran = False  # whether the optimizer itself was run: a skipped scaler.step returns None as any other does
        check_parts(optimizer, scheduler, scaler=self._scaler, accumulate=accumulate)
        self._note_scale()
        optimizer.register_step_post_hook(self._note_step)

    def __call__(self, batch: Any, *, last: bool = False) -> StepResult:
        """Train on a batch. ``last`` ends the window here: pass it for the last batch of an epoch, if you know."""
        batch = to_device(batch, self.device)
        if self._closure:
            return self._closure_step(batch)
        if not self._pending:
            self.optimizer.zero_grad(set_to_none=True)
        ends = last or self._pending + 1 >= self.accumulate
        local = self._distributed and not ends
        with self.model.no_sync() if local else contextlib.nullcontext():  # type: ignore[operator]
            loss, outputs, targets = self._loss(batch)
            scaled = loss / self.accumulate if self.accumulate > 1 else loss
            (scaled if self._scaler is None else self._scaler.scale(scaled)).backward()
        self._pending += 1
        self._unreduced = local
        stepped, norm, finite = self._finish(loss.detach()) if ends else (False, None, None)
        return StepResult(loss.detach(), _detached(outputs), targets, stepped, norm, finite)

    def flush(self) -> bool:
        """Step on the gradients of a window that is not full; True if the optimizer was stepped.

        They are rescaled to the mean over the batches that there were. Call it after an epoch whose number of batches
        is not known beforehand. With several processes all must call it.
        """
        if not self._pending:
            return False
        if self._unreduced:
            average_gradients(self.model)
        return self._finish(None)[0]

    @property
    def skipped(self) -> int:
        """Steps whose gradients were not finite, left out or made with zero gradients. Reading it waits."""
        return self._skipped + (0 if self._blanked is None else int(self._blanked))

    @property
    def pending(self) -> int:
        """Batches whose gradients wait for the window to end."""
        return self._pending

    def evaluate(self, batch: Any) -> tuple[torch.Tensor, Any, Any]:
        """Loss, outputs and targets of a batch, in this step's precision and without training."""
        with torch.inference_mode():
            loss, outputs, targets = self._loss(to_device(batch, self.device), unwrap(self.model), training=False)
        return loss, outputs, targets

    def _loss(
        self, batch: Any, model: torch.nn.Module | None = None, training: bool = True
    ) -> tuple[torch.Tensor, Any, Any]:
        with self.precision.autocast():
            outputs, targets = self.forward(self.model if model is None else model, batch)
            loss = self.loss_fn(outputs, targets)
        if not isinstance(loss, torch.Tensor):
            raise TypeError(f"TrainStep: loss_fn returned {type(loss).__name__}; it must return a tensor")
        if loss.numel() != 1:
            raise ValueError(
                f"TrainStep: loss_fn returned a tensor of shape {tuple(loss.shape)}; it must have one element: reduce "
                "it, loss.mean()"
            )
        if training and not loss.requires_grad:
            raise ValueError(
                "TrainStep: no trainable parameter takes part in the loss: all are frozen, the result was detached, or "
                "gradients are disabled here"
            )
        return loss.reshape(()) if loss.dim() else loss, outputs, targets

    def _finish(self, loss: torch.Tensor | None) -> tuple[bool, torch.Tensor | None, torch.Tensor | None]:
        """End the window: from gradients to parameters. Loss is that of the last batch."""
        count, self._pending, self._unreduced = self._pending, 0, False
        scaler = self._scaler
        gradients = self._gradients()
        if not gradients:
            raise ValueError(
                "TrainStep: no parameter of the optimizer got a gradient: it was made for another model, or before "
                "the model's parameters were replaced"
            )
        if scaler is not None and (self.clip_norm is not None or count != self.accumulate):
            scaler.unscale_(self.optimizer)
        if count != self.accumulate:
            torch._foreach_mul_(gradients, self.accumulate / count)
        norm = self._clip()
        if scaler is not None:
            if self.on_nonfinite == "raise" and loss is not None and not bool(torch.isfinite(loss)):
                raise FloatingPointError(f"step {self.steps}: the loss is {float(loss)}")
            stepped, finite = self._scaled_step(scaler), None
        else:
            stepped, finite = self._plain_step(gradients)
        if stepped:
            self.steps += 1
            if self.scheduler is not None:
                self.scheduler.step()
        else:
            self._skipped += 1
        return stepped, norm, finite

    def _scaled_step(self, scaler: Any) -> bool:
        self._ran = False
        scaler.step(self.optimizer)
        scaler.update()
        if not self._fused:
            return self._ran
        # a fused optimizer is run in any case and decides on the device; a smaller scale is what can be seen of it
        before, after = self._scale_before, scaler.get_scale()
        self._scale_before = after
        return bool(after >= before)

    def _plain_step(self, gradients: list[torch.Tensor]) -> tuple[bool, torch.Tensor | None]:
        if self.on_nonfinite == "ignore":
            self.optimizer.step()
            return True, None
        finite = nonfinite.are_finite(gradients)
        if self.on_nonfinite == "raise":
            if not bool(finite):
                self._raise()
        elif nonfinite.decided_on_host(gradients):
            if not bool(finite):
                return False, finite
        else:
            bad = ~finite
            self._blanked = bad.long() if self._blanked is None else self._blanked.add_(bad)
            if self._fused:
                self.optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
                try:
                    self.optimizer.step()
                finally:
                    del self.optimizer.found_inf  # type: ignore[attr-defined]
                return True, finite
            nonfinite.blank(gradients, finite)
        self.optimizer.step()
        return True, finite

    def _closure_step(self, batch: Any) -> StepResult:
        first: list[Any] = []

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            loss, outputs, targets = self._loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = self._clip()
            if not first:
                first.extend((loss.detach(), _detached(outputs), targets, norm))
                gradients = self._gradients()
                if self.on_nonfinite != "ignore" and not bool(nonfinite.are_finite(gradients)):
                    if self.on_nonfinite == "raise":
                        self._raise()
                    raise _Skip
            return loss

        stepped = True
        try:
            self.optimizer.step(closure)  # type: ignore[arg-type]
        except _Skip:
            stepped = False
            self._skipped += 1
        if stepped:
            self.steps += 1
            if self.scheduler is not None:
                self.scheduler.step()
        loss, outputs, targets, norm = first
        return StepResult(loss, outputs, targets, stepped, norm)

    def _raise(self) -> None:
        bad = nonfinite.names_of_bad(unwrap(self.model).named_parameters())
        raise FloatingPointError(
            f"step {self.steps}: gradients are not finite: {bad or 'of parameters outside the model'}; nothing was "
            "changed. Look at the batch and the loss, lower the learning rate, or clip with clip_norm"
        )

    def _clip(self) -> torch.Tensor | None:
        if self.clip_norm is None:
            return None
        return torch.nn.utils.clip_grad_norm_(self._parameters(), self.clip_norm)

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self._parameters() if parameter.grad is not None]

    def _note_scale(self) -> None:
        if self._scaler is not None and self._fused:
            self._scale_before = self._scaler.get_scale()

    def _note_step(self, *_: Any) -> None:
        self._ran = True

    def state_dict(self) -> dict[str, Any]:
        """The state of model (unwrapped), optimizer, scheduler, scaler, and the counts.

        Raises:
            RuntimeError: within a window, whose gradients are in no state: call ``flush`` first.
        """
        if self._pending:
            raise RuntimeError(
                f"TrainStep.state_dict: {self._pending} of {self.accumulate} batches are accumulated, and gradients are "
                "not saved; save after a step, or call flush() first"
            )
        return {
            "model": unwrap(self.model).state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "steps": self.steps,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. A scaler starts anew if there was none, and a saved one is not needed without float16.

        Raises:
            ValueError: if there is a scheduler now and was none then, or the other way round.
        """
        if (self.scheduler is None) != (state["scheduler"] is None):
            then, now = ("no", "one") if state["scheduler"] is None else ("a", "none")
            raise ValueError(f"TrainStep.load_state_dict: the state has {then} scheduler, this TrainStep has {now}")
        unwrap(self.model).load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self._scaler is not None:
            if state["scaler"]:
                self._scaler.load_state_dict(state["scaler"])
            else:
                warnings.warn("the state was saved without loss scaling: the scale starts anew", stacklevel=2)
        self.optimizer.zero_grad(set_to_none=True)
        self.steps, self._skipped = int(state["steps"]), int(state["skipped"])
        self._pending, self._unreduced, self._blanked = 0, False, None
        self._note_scale()


def _pair(model: torch.nn.Module, batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        what = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
        raise TypeError(
            f"TrainStep: the batch is a {what}, not a pair of inputs and targets; say how it is used: "
            'TrainStep(..., forward=lambda model, batch: (model(batch["x"]), batch["y"]))'
        )
    return model(batch[0]), batch[1]


def _detached(outputs: Any) -> Any:
    return outputs.detach() if isinstance(outputs, torch.Tensor) else outputs
