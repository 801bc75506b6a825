"""Values that a CUDA kernel asserts on: the CPU raises an error of its own where CUDA reports a device-side assert."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse import messages
from devlint.runtime._rehearse.checks import Plan, arguments_of
from devlint.runtime._rehearse.state import Rehearsal

TEXT = "CUDA error: device-side assert triggered"
_READERS = {
    "embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "nll_loss_forward",
    "nll_loss2d_forward", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
    "scatter_reduce_", "index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "index_select",
    "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "take", "put_",
    "binary_cross_entropy", "multi_margin_loss",
}  # fmt: skip
_WORDS = ("out of bounds", "out of range", "should be between 0 and 1", "Target out of")


def asserted(session: Rehearsal, plan: Plan, args: Any, kwargs: Any, error: Exception) -> Exception | None:
    """The error that CUDA reports where the CPU's kernel raised ``error``; None where it is the same."""
    if session.kind != "cuda" or plan.base not in _READERS or not any(word in str(error) for word in _WORDS):
        return None
    infos, _, forward = messages.describe(session, arguments_of(session, plan, args, kwargs))
    text = f"{TEXT}\n  found on the CPU: {error}"
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    return session.fail(text, plan.base, "", infos, forward, error=kind)
