"""Run torch's operator database with every argument on a rehearsed GPU: no operator may report a mismatch.

    python benchmarks/rehearse_opinfo.py [--samples N] [NAME ...]

Prints how many samples ran, each false mismatch, and each other error that a plain CPU run doesn't have; exit 1 with
a false mismatch. Needs torch's test helpers (``expecttest``).
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree

from devlint.runtime._rehearse import RehearsedDeviceError, rehearse

MOVED = ("same device", "device type", "either on cpu")


def call(operator: Any, sample: Any, device: str) -> str:
    """'' where the operator runs on ``device``, else the error."""

    def put(value: Any) -> Any:
        return value.detach().to(device) if isinstance(value, torch.Tensor) else value

    value, args, kwargs = pytree.tree_map(put, (sample.input, sample.args, sample.kwargs))
    try:
        operator.op(value, *args, **kwargs)
    except Exception as error:
        kind = "mismatch" if isinstance(error, RehearsedDeviceError) else "error"
        if kind == "error" and any(text in str(error) for text in MOVED):
            kind = "mismatch"
        return f"{kind}: {type(error).__name__}: {str(error)[:200]}"
    return ""


def main() -> int:
    """Sweep the database; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator (default 2)")
    parser.add_argument("names", nargs="*", help="operators to run (default all)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        print(f"torch's test helpers are not installed: {error}", file=sys.stderr)
        return 2
    seen: collections.Counter[str] = collections.Counter()
    found: list[str] = []
    for operator in op_db:
        if options.names and operator.name not in options.names:
            continue
        dtype = torch.float32 if torch.float32 in operator.dtypes else torch.int64
        if dtype not in operator.dtypes:
            continue
        try:
            samples = list(operator.sample_inputs("cpu", dtype, requires_grad=False))[: options.samples]
        except Exception:
            seen["no samples"] += 1
            continue
        for sample in samples:
            with rehearse("cuda"):
                outcome = call(operator, sample, "cuda")
            if outcome and call(operator, sample, "cpu"):
                outcome, seen["fails on the CPU too"] = "", seen["fails on the CPU too"] + 1
                continue
            seen[outcome.split(":")[0] or "ran"] += 1
            if outcome:
                found.append(f"{operator.name}: {outcome}")
    print(dict(seen))
    print("\n".join(sorted(set(found))))
    return 1 if seen["mismatch"] else 0


if __name__ == "__main__":
    sys.exit(main())
