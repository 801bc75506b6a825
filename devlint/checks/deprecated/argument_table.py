"""Deprecated and removed arguments of torch's functions and classes, as data; tested as `table.py` is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class Argument(NamedTuple):
    """A keyword that goes: renamed to `new`, dropped, or neither where `fix` is `none`.

    `gate` is the oldest torch for which the fix is right.
    """

    keyword: str
    why: str
    fix: Literal["rename", "drop", "none"] = "drop"
    new: str = ""
    gate: tuple[int, int] = (1, 0)
    code: str = "TDL519"


class Missing(NamedTuple):
    """An argument that must be given by now: by keyword, or at `position`. `fix` says what the default has been."""

    keyword: str
    position: int | None
    why: str
    fix: str = ""
    gate: tuple[int, int] = (1, 0)


_RENAMED = "`{0}` is deprecated; it is `{1}` now"
_PIN = "`pin_memory_device` is ignored since torch 2.8: the accelerator in use is pinned for"
_IGNORED = "is deprecated, and ignored"
_ACTIVITIES = "`use_cuda` is deprecated since torch 1.8.1; name the `activities`"
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "torch.utils.data.DataLoader": (Argument("pin_memory_device", _PIN, gate=(2, 8), code="TDL511"),),
    "torch.nn.parallel.DistributedDataParallel": (
        Argument("check_reduction", "`check_reduction` does nothing any more"),
    ),
    "torch.autograd.backward": (
        Argument("grad_variables", _RENAMED.format("grad_variables", "grad_tensors"), "rename", "grad_tensors"),
    ),
    "torch.autograd.grad": (Argument("only_inputs", f"`only_inputs` {_IGNORED}"),),
    "torch.profiler.profile": (Argument("use_cuda", _ACTIVITIES, "none"),),
    "torch.nn.functional.gumbel_softmax": (Argument("eps", f"`eps` {_IGNORED}"),),
    "torch.nn.Hardtanh": (
        Argument("min_value", _RENAMED.format("min_value", "min_val"), "rename", "min_val"),
        Argument("max_value", _RENAMED.format("max_value", "max_val"), "rename", "max_val"),
    ),
    "torch.distributed.checkpoint.DefaultSavePlanner": (
        Argument("dedup_replicated_tensors", f"`dedup_replicated_tensors` {_IGNORED}", gate=(2, 4)),
    ),
    "torch.cuda.nccl.reduce": (
        Argument("outputs", "`outputs` is deprecated; give the one output as `output`", "none"),
    ),
}
"""Callables, and what becomes of their arguments."""

_DIM = "without `dim` the dimension is guessed, which is deprecated; say which"
_REENTRANT = (
    "without `use_reentrant` torch warns since 2.0, and its default is to change; `use_reentrant=False` is recommended, "
    "`use_reentrant=True` is what it does now"
)
_INDEXING = (
    "`torch.meshgrid` without `indexing` is deprecated since torch 1.10, for its default will change; say "
    '`indexing="ij"`, which is what it does now'
)
MISSING: dict[str, Missing] = {
    "torch.meshgrid": Missing("indexing", None, _INDEXING, 'indexing="ij"', (1, 10)),
    "torch.utils.checkpoint.checkpoint": Missing("use_reentrant", None, _REENTRANT, "use_reentrant=True", (1, 11)),
    "torch.utils.checkpoint.checkpoint_sequential": Missing(
        "use_reentrant", None, _REENTRANT, "use_reentrant=True", (2, 1)
    ),
    **{f"torch.nn.functional.{name}": Missing("dim", 1, _DIM) for name in ("softmax", "log_softmax", "softmin")},
    **{f"torch.nn.{name}": Missing("dim", 0, _DIM) for name in ("Softmax", "LogSoftmax", "Softmin")},
}
"""Callables that warn where an argument is left out."""

SCHEDULERS = "torch.optim.lr_scheduler."
"""The module whose classes took `verbose=` until torch 2.7; it is a TypeError since."""
VERBOSE = Argument(
    "verbose", "`verbose` is deprecated since torch 2.2 and a TypeError since 2.7; print `scheduler.get_last_lr()`"
)


def _losses() -> Iterator[str]:
    for name in (
        "L1Loss NLLLoss PoissonNLLLoss KLDivLoss MSELoss BCELoss BCEWithLogitsLoss HingeEmbeddingLoss MultiLabelMarginLoss "
        "SmoothL1Loss SoftMarginLoss CrossEntropyLoss MultiLabelSoftMarginLoss CosineEmbeddingLoss MarginRankingLoss "
        "MultiMarginLoss TripletMarginLoss"
    ).split():
        yield f"torch.nn.{name}"
    for name in (
        "l1_loss nll_loss poisson_nll_loss kl_div mse_loss binary_cross_entropy binary_cross_entropy_with_logits "
        "hinge_embedding_loss multilabel_margin_loss smooth_l1_loss soft_margin_loss cross_entropy "
        "multilabel_soft_margin_loss cosine_embedding_loss margin_ranking_loss multi_margin_loss triplet_margin_loss"
    ).split():
        yield f"torch.nn.functional.{name}"


LOSSES = frozenset(_losses())
"""What takes `reduction=` in place of `size_average=` and `reduce=` since torch 0.4.1."""
