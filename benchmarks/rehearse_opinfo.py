"""Run torch's operator database on a rehearsed GPU.

    python benchmarks/rehearse_opinfo.py [--left-behind] [--samples N] [--verbose] [NAME ...]

By default every argument is on the device, and no operator may report a mismatch: prints how many samples ran, each
false mismatch, and each other error that a plain CPU run doesn't have. With ``--left-behind``, one tensor argument at
a time stays on the CPU, and the verdict is compared with that of torch's FakeTensor, which knows the devices but has
no values; the disagreements are printed by operator. Exit 1 with a false mismatch. Needs torch's test helpers
(``expecttest``).
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from devlint.runtime._rehearse import RehearsedDeviceError, rehearse

MOVED = (
    "same device",
    "device type",
    "either on cpu",
    "DeviceMismatch",
    "two devices",
    "Mismatching",
    "must match device",
    "should be the same",
    "indices should be",
    "to be on cpu",
    "must be a CPU",
    "different devices",
)
MOST = 6  # tensors of a sample
ON_THE_HOST = ("tensor_split",)  # has an argument that must lie on the CPU


def call(operator: Any, sample: Any, device: str, left: int = -1) -> str:
    """'' where the operator runs with its tensors on ``device`` (number ``left`` on the CPU), else the error."""
    number = iter(range(1_000_000))

    def put(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach() if next(number) == left else value.detach().to(device)

    try:
        value, args, kwargs = pytree.tree_map(put, (sample.input, sample.args, sample.kwargs))
        operator.op(value, *args, **kwargs)
    except Exception as error:
        kind = "mismatch" if isinstance(error, RehearsedDeviceError) else "error"
        text = f"{type(error).__name__}: {error}"
        if kind == "error" and any(part in text for part in MOVED):
            kind = "mismatch"
        return f"{kind}: {text[:200]}"
    return ""


def samples_of(names: list[str], most: int, several: bool) -> Iterator[tuple[Any, Any]]:
    """(operator, sample) of the database; with ``several``, those with 2 to ``MOST`` dense tensors first."""
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        if names and operator.name not in names:
            continue
        dtype = torch.float32 if torch.float32 in operator.dtypes else torch.int64
        if dtype not in operator.dtypes:
            continue
        try:
            found = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
        except Exception:
            continue
        if several:
            found = [sample for sample in found if 2 <= len(tensors_of(sample)) <= MOST]
        for sample in found[:most]:
            yield operator, sample


def tensors_of(sample: Any) -> list[torch.Tensor]:
    """The dense tensors of a sample; none where one is sparse."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return found if all(tensor.layout is torch.strided for tensor in found) else []


def all_on_device(names: list[str], most: int) -> int:
    """Every argument on the device: the exit code."""
    seen: collections.Counter[str] = collections.Counter()
    found: list[str] = []
    for operator, sample in samples_of(names, most, False):
        with rehearse("cuda"):
            outcome = call(operator, sample, "cuda") if operator.name not in ON_THE_HOST else ""
        if outcome and call(operator, sample, "cpu"):
            outcome, seen["fails on the CPU too"] = "", seen["fails on the CPU too"] + 1
            continue
        seen[outcome.split(":")[0] or "ran"] += 1
        if outcome:
            found.append(f"{operator.name}: {outcome}")
    print(dict(seen))
    print("\n".join(sorted(set(found))))
    return 1 if seen["mismatch"] else 0


def one_left_behind(names: list[str], most: int, verbose: bool) -> int:
    """One argument at a time on the CPU, beside FakeTensor: the exit code."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    apart: dict[tuple[str, str], dict[str, str]] = {}
    for operator, sample in samples_of(names, most, True):
        if call(operator, sample, "cpu"):
            continue
        for left in range(len(tensors_of(sample))):
            with rehearse("cuda"):
                ours = call(operator, sample, "cuda", left)
            with FakeTensorMode(allow_non_fake_inputs=True):
                fake = call(operator, sample, "cuda:0", left)  # "cuda" would look for the current device
            verdicts = ours.split(":")[0] or "ran", fake.split(":")[0] or "ran"
            seen[verdicts] += 1
            if verdicts[0] != verdicts[1]:
                shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_of(sample))
                text = f"argument {left} of {shapes}: {ours or fake}"
                apart.setdefault(verdicts, {}).setdefault(operator.name, text)
    print("rehearsed, FakeTensor: verdicts")
    for verdicts, count in seen.most_common():
        print(f"{verdicts[0]}, {verdicts[1]}: {count}")
    for verdicts, operators in sorted(apart.items()):
        print(f"\nrehearsed {verdicts[0]}, FakeTensor {verdicts[1]}: {len(operators)} operators")
        print("\n".join(f"  {name}: {text}" for name, text in operators.items()) if verbose else ", ".join(operators))
    return 0


def main() -> int:
    """Sweep the database; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--left-behind", action="store_true", help="leave one argument at a time on the CPU")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator (default 2)")
    parser.add_argument("--verbose", action="store_true", help="show the arguments and the error of a disagreement")
    parser.add_argument("names", nargs="*", help="operators to run (default all)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        import torch.testing._internal.common_methods_invocations  # noqa: F401
    except ImportError as error:
        print(f"torch's test helpers are not installed: {error}", file=sys.stderr)
        return 2
    if options.left_behind:
        return one_left_behind(options.names, options.samples, options.verbose)
    return all_on_device(options.names, options.samples)


if __name__ == "__main__":
    sys.exit(main())
