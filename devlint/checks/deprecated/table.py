"""Deprecated and removed names of torch, as data; `tests/checks/test_deprecation_table.py` holds it against the torch
that is installed.

Sources: the `@deprecated` decorators, warnings and missing names of torch 2.13, and the removals that TorchFix lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Symbol:
    """A name that has a successor, or none.

    `since` is the release that deprecated it, `removed` the one that took it out. `gate` is the oldest torch that has
    `new`. `first` is an argument that the new name takes before all others. `fix` says whether a call can be rewritten by
    the name (and `first`) alone. `probe` is a program that uses the old name, for the test: it must warn or fail.
    """

    code: str
    old: str
    new: str
    since: str
    fix: Literal["safe", "unsafe", "none"] = "none"
    gate: tuple[int, int] = (1, 0)
    first: str = ""
    removed: str = ""
    note: str = ""
    probe: str = ""


def _autocast(device: str) -> list[Symbol]:
    legacy = "gpu" if device == "cuda" else device
    text = f'"{device}"'
    since, gate = "2.4", (2, 4)
    entries = [
        Symbol("TDL504", f"torch.get_autocast_{legacy}_dtype", "torch.get_autocast_dtype", since, "safe", gate, text),
        Symbol("TDL504", f"torch.set_autocast_{legacy}_dtype", "torch.set_autocast_dtype", since, "safe", gate, text),
    ]
    if device != "cuda":
        entries += [
            Symbol(
                "TDL504", f"torch.is_autocast_{device}_enabled", "torch.is_autocast_enabled", since, "safe", gate, text
            ),
            Symbol(
                "TDL504",
                f"torch.set_autocast_{device}_enabled",
                "torch.set_autocast_enabled",
                since,
                "safe",
                gate,
                text,
            ),
        ]
    return entries


SYMBOLS: dict[str, Symbol] = {
    entry.old: entry
    for entry in (
        *(entry for device in ("cuda", "cpu", "xla", "ipu") for entry in _autocast(device)),
        Symbol("TDL512", "torch.cuda.memory_cached", "torch.cuda.memory_reserved", "1.4", "safe"),
        Symbol("TDL512", "torch.cuda.max_memory_cached", "torch.cuda.max_memory_reserved", "1.4", "safe"),
        Symbol(
            "TDL512",
            "torch.cuda.reset_max_memory_allocated",
            "torch.cuda.reset_peak_memory_stats",
            "1.4",
            "unsafe",
            note="it resets all peaks, as the old name does by now",
        ),
        Symbol(
            "TDL512",
            "torch.cuda.reset_max_memory_cached",
            "torch.cuda.reset_peak_memory_stats",
            "1.4",
            "unsafe",
            note="it resets all peaks, as the old name does by now",
        ),
        Symbol(
            "TDL513",
            "torch.has_cuda",
            "torch.backends.cuda.is_built",
            "2.1",
            note="built, not available: torch.cuda.is_available() is what is usually meant",
        ),
        Symbol("TDL513", "torch.has_cudnn", "torch.backends.cudnn.is_available", "2.1"),
        Symbol("TDL513", "torch.has_mps", "torch.backends.mps.is_built", "2.1"),
        Symbol("TDL513", "torch.has_mkldnn", "torch.backends.mkldnn.is_available", "2.1"),
        Symbol(
            "TDL515",
            "torch.accelerator.current_device_idx",
            "torch.accelerator.current_device_index",
            "2.8",
            "safe",
            (2, 7),
        ),
        Symbol(
            "TDL515", "torch.accelerator.set_device_idx", "torch.accelerator.set_device_index", "2.8", "safe", (2, 7)
        ),
        Symbol("TDL517", "torch.nn.utils.clip_grad_norm", "torch.nn.utils.clip_grad_norm_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.functional.upsample", "torch.nn.functional.interpolate", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.functional.upsample_nearest", "torch.nn.functional.interpolate", "0.4"),
        Symbol("TDL517", "torch.nn.functional.upsample_bilinear", "torch.nn.functional.interpolate", "0.4"),
        Symbol(
            "TDL517",
            "torch.chain_matmul",
            "torch.linalg.multi_dot",
            "1.8",
            note="it takes the matrices as one sequence",
        ),
        Symbol("TDL517", "torch.range", "torch.arange", "0.4", note="arange leaves the end out, and keeps integers"),
        Symbol("TDL517", "torch.cholesky", "torch.linalg.cholesky", "1.8"),
        Symbol("TDL517", "torch.qr", "torch.linalg.qr", "1.8", note="`some` becomes `mode`"),
        Symbol("TDL517", "torch.symeig", "torch.linalg.eigh", "1.9", removed="2.0"),
        Symbol("TDL517", "torch.eig", "torch.linalg.eig", "1.9", removed="2.0"),
        Symbol("TDL517", "torch.lstsq", "torch.linalg.lstsq", "1.9", removed="2.0", note="the arguments change places"),
        Symbol("TDL517", "torch.solve", "torch.linalg.solve", "1.9", removed="2.0", note="the arguments change places"),
        Symbol("TDL517", "torch.matrix_rank", "torch.linalg.matrix_rank", "1.9", removed="2.0"),
        Symbol("TDL517", "torch.distributed.reduce_op", "torch.distributed.ReduceOp", "1.0", "safe"),
        Symbol("TDL517", "torch.distributed.checkpoint.save_state_dict", "torch.distributed.checkpoint.save", "2.2"),
        Symbol("TDL517", "torch.distributed.checkpoint.load_state_dict", "torch.distributed.checkpoint.load", "2.2"),
        Symbol("TDL517", "torch.backends.cuda.sdp_kernel", "torch.nn.attention.sdpa_kernel", "2.3", gate=(2, 3)),
        Symbol("TDL517", "torch.nn.init.uniform", "torch.nn.init.uniform_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.normal", "torch.nn.init.normal_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.constant", "torch.nn.init.constant_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.eye", "torch.nn.init.eye_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.dirac", "torch.nn.init.dirac_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.xavier_uniform", "torch.nn.init.xavier_uniform_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.xavier_normal", "torch.nn.init.xavier_normal_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.kaiming_uniform", "torch.nn.init.kaiming_uniform_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.kaiming_normal", "torch.nn.init.kaiming_normal_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.orthogonal", "torch.nn.init.orthogonal_", "0.4", "safe"),
        Symbol("TDL517", "torch.nn.init.sparse", "torch.nn.init.sparse_", "0.4", "safe"),
    )
}

DROPPED: dict[str, tuple[str, str, str]] = {
    "torch.utils.data.DataLoader": (
        "TDL511",
        "pin_memory_device",
        "is ignored since torch 2.8: the accelerator in use is pinned for",
    ),
    "torch.nn.parallel.DistributedDataParallel": ("TDL517", "check_reduction", "does nothing any more"),
}
"""Callables, and the argument of each that can be left out: (code, argument, why)."""

SCHEDULERS = "torch.optim.lr_scheduler."
"""The module whose classes took `verbose=` until torch 2.7; it is a TypeError since."""
