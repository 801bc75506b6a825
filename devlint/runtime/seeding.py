"""Random numbers: seeding every generator, and taking and restoring their states."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import torch


def seed_everything(seed: int, *, deterministic: bool = False) -> None:
    """Seed ``random``, NumPy (if installed) and torch on every device.

    Under several processes pass ``seed + rank``, so that dropout and augmentation differ between them.

    Args:
        seed: from 0 to 2**32 - 1, the range that NumPy takes.
        deterministic: also make torch use deterministic algorithms, and raise where an operator has none. cuBLAS
            needs ``CUBLAS_WORKSPACE_CONFIG`` for that, which is set here unless it is set already; call this
            before anything runs on a CUDA device.

    Raises:
        TypeError: for a seed that is no integer.
        ValueError: for one out of range.

    Source: "Reproducibility" in the PyTorch documentation.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed_everything: seed is {seed!r}; it must be an integer")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed_everything: seed is {seed}; it must be from 0 to 2**32 - 1")
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of this process's generators, in types that ``torch.load(weights_only=True)`` takes."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(internal), gauss],
        "torch": torch.get_rng_state(),
        "device": None,
        "numpy": None,
    }
    backend: Any = getattr(torch, device.type, None)
    if device.type not in ("cpu", "meta") and hasattr(backend, "get_rng_state"):
        state["device"] = backend.get_rng_state() if device.type == "mps" else backend.get_rng_state(device)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [str(name), keys.tolist(), int(position), int(has_gauss), float(cached)]
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what ``random_state`` took."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    backend: Any = getattr(torch, device.type, None)
    if state["device"] is not None and hasattr(backend, "set_rng_state"):
        if device.type == "mps":
            backend.set_rng_state(state["device"])
        else:
            backend.set_rng_state(state["device"], device)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and state["numpy"] is not None:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype="uint32"), position, has_gauss, cached))
