"""Train and evaluate real architectures on a rehearsed GPU, then leave a tensor behind and see that it is caught.

    python benchmarks/rehearse_models.py [--packages NAME ...] [NAME ...]

Small configurations with random weights of torchvision, timm, transformers and torch_geometric models. For each:

- a training step (forward, backward, optimizer step) and an evaluation on ``cuda`` must report no mismatch;
- loss, gradients, new parameters and evaluation must equal a plain CPU run bit for bit;
- with the labels, an input, or the buffers (a module's parameters where NaN in the buffers changes nothing) left on
  the CPU, the rehearsal must report it. "moved" is a model that copies the tensor to the device by itself.

Prints a table; exit 1 with a failure, 2 where no package is installed. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rehearse_models_zoo import PACKAGES, Example, cases

from devlint.runtime._rehearse import Report, rehearse

COLUMNS = ("train", "eval", "bits", "labels", "input", "buffer")
GOOD = {"ok", "caught", "moved"}


@dataclass
class Outcome:
    """One row of the table; ``why`` explains what failed."""

    cells: dict[str, str]
    why: list[str]
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Everything as it should be, and at least one left-behind tensor was caught."""
        return set(self.cells.values()) <= GOOD and "caught" in self.cells.values()


Values = list[tuple[str, torch.Tensor]]


def step(model: torch.nn.Module, example: Example, device: str) -> Values:
    """One training step; the loss, and each parameter with its gradient, as host tensors."""
    torch.manual_seed(1)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = example.loss(model)
    loss.backward()
    optimizer.step()
    values: Values = [("loss", loss.detach().cpu())]
    for name, parameter in model.named_parameters():
        values.append((name, parameter.detach().cpu()))
        if parameter.grad is not None:
            values.append((f"gradient of {name}", parameter.grad.cpu()))
    return values


@torch.no_grad()
def evaluate(model: torch.nn.Module, example: Example) -> Values:
    """The loss in evaluation mode."""
    model.eval()
    return [("evaluation", example.loss(model).cpu())]


def first_difference(plain: Values, rehearsed: Values) -> str:
    """Name of the first tensor that differs (NaN equals NaN), '' for none."""
    for (name, left), (_, right) in zip(plain, rehearsed, strict=True):
        if left.dtype != right.dtype or not torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0)):
            return name
    return ""


def clean_run(model: torch.nn.Module, example: Example, outcome: Outcome) -> None:
    """Train and evaluate on both machines, and compare."""
    plain = copy.deepcopy(model)
    values = step(plain, example, "cpu")
    evaluation = evaluate(plain, example)
    results: Values = []
    for name in ("train", "eval"):
        outcome.cells[name] = "not run"
    with rehearse("cuda") as report:
        on_device, moved = copy.deepcopy(model).to("cuda"), example.to("cuda")
        for name, part in (
            ("train", lambda: step(on_device, moved, "cuda")),
            ("eval", lambda: evaluate(on_device, moved)),
        ):
            try:
                results += part()
                outcome.cells[name] = "ok"
            except Exception as error:
                outcome.cells[name] = "FAILED"
                outcome.why.append(f"{name}: {type(error).__name__}: {error}\n{short_trace(error)}")
                return
    if not report.clean:
        outcome.cells["train"] = "MISMATCH"
        outcome.why += [found.message for found in report.mismatches]
    difference = first_difference(values + evaluation, results)
    outcome.cells["bits"] = f"DIFFERS: {difference}" if difference else "ok"


def short_trace(error: Exception) -> str:
    """The last frames of the error."""
    return "".join(traceback.format_tb(error.__traceback__)[-4:])


Leave = Callable[[Any, Example], tuple[Any, Example]]


def left_behind(model: torch.nn.Module, example: Example, leave: Leave) -> Report:
    """The report of a step with what ``leave`` left on the CPU."""
    with rehearse("cuda") as report:
        try:
            step(*leave(copy.deepcopy(model), example), "cuda")
        except Exception as error:
            if not report.mismatches and str(error):
                report.note(f"{type(error).__name__}: {error}")
    return report


def verdict(model: torch.nn.Module, example: Example, leave: Leave) -> str:
    """``caught``; ``moved`` where the model then copied more to the device than it does with nothing left behind."""
    report = left_behind(model, example, leave)
    if report.mismatches:
        named = any(tensor.device == "cpu" for found in report.mismatches for tensor in found.tensors)
        return "caught" if named else "WRONG ERROR"
    moved = step_copies(model, example, leave) > step_copies(model, example, leave_nothing)
    return "moved" if moved else "MISSED"


def step_copies(model: torch.nn.Module, example: Example, leave: Leave) -> int:
    """Host-to-device copies during the step itself."""
    with rehearse("cuda") as report:
        placed = leave(copy.deepcopy(model), example)
        before = sum(transfer.count for transfer in report.transfers if transfer.direction == "H2D")
        step(*placed, "cuda")
    return sum(transfer.count for transfer in report.transfers if transfer.direction == "H2D") - before


def leave_nothing(model: Any, example: Example) -> tuple[Any, Example]:
    """Move everything."""
    return model.to("cuda"), example.to("cuda")


def leave_tensor(name: str) -> Leave:
    """Move all but input or label ``name``."""
    return lambda model, example: (model.to("cuda"), example.to("cuda", but=name))


def buffers_matter(model: torch.nn.Module, example: Example) -> bool:
    """Whether NaN in the floating-point buffers changes the training loss or the evaluation."""
    poisoned = copy.deepcopy(model)
    for buffer in poisoned.buffers():
        if buffer.is_floating_point():
            buffer.fill_(float("nan"))
    torch.manual_seed(1)
    with torch.no_grad():
        return any(not bool(example.loss(poisoned.train(mode)).isfinite()) for mode in (False, True))


def keep_buffers(model: Any, example: Example) -> tuple[Any, Example]:
    """Move all but the buffers, as if they were plain attributes."""
    kept = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    model.to("cuda")
    for module, name, buffer in kept:
        module._buffers[name] = buffer
    return model, example.to("cuda")


def keep_parameter(model: Any, example: Example) -> tuple[Any, Example]:
    """Move all but the parameters of the last module that has some of its own."""
    last = [module for module in model.modules() if module._parameters][-1]
    kept = {name: value.detach().clone() for name, value in last._parameters.items() if value is not None}
    model.to("cuda")
    for name, value in kept.items():
        last._parameters[name] = torch.nn.Parameter(value)
    return model, example.to("cuda")


def left_buffers(model: torch.nn.Module, example: Example) -> str:
    """Leave the buffers behind, or one module's parameters where no buffer has an effect."""
    if any(buffer.is_floating_point() for buffer in model.buffers()) and buffers_matter(model, example):
        return verdict(model, example, keep_buffers)
    return verdict(model, example, keep_parameter)


def examine(build: Callable[[], tuple[torch.nn.Module, Example]]) -> Outcome:
    """All runs of one architecture."""
    outcome = Outcome(dict.fromkeys(COLUMNS, "-"), [])
    start = time.perf_counter()
    torch.manual_seed(0)
    model, example = build()
    clean_run(model, example, outcome)
    outcome.cells["labels"] = verdict(model, example, leave_tensor("labels"))
    outcome.cells["input"] = verdict(model, example, leave_tensor(example.left))
    outcome.cells["buffer"] = left_buffers(model, example)
    outcome.seconds = time.perf_counter() - start
    return outcome


def main() -> int:
    """Run the sweep; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES, help="default: all")
    parser.add_argument("names", nargs="*", help="architectures to run (default all)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found, missing = cases(options.packages)
    for text in missing:
        print(f"not run: {text}", file=sys.stderr)
    chosen = {name: build for name, build in found.items() if not options.names or name in options.names}
    unknown = set(options.names) - set(found)
    if unknown or not chosen:
        print(f"nothing to run: {', '.join(sorted(unknown)) or 'no package is installed'}", file=sys.stderr)
        return 2
    print("| architecture | " + " | ".join(COLUMNS) + " | s |\n|---|" + "---|" * (len(COLUMNS) + 1), flush=True)
    failed = 0
    for name, build in chosen.items():
        try:
            outcome = examine(build)
        except Exception as error:
            outcome = Outcome(dict.fromkeys(COLUMNS, "ERROR"), [f"{error!r}\n{short_trace(error)}"])
        print(f"| {name} | {' | '.join(outcome.cells.values())} | {outcome.seconds:.1f} |", flush=True)
        failed += not outcome.good
        if not outcome.good:
            print("\n".join(outcome.why) or "  no left-behind tensor was caught", file=sys.stderr, flush=True)
    print(f"{len(chosen)} architectures, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
