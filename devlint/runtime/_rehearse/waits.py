"""Operators that make the host wait for the device, and when they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_ALWAYS = {
    "_local_scalar_dense",
    "nonzero",
    "nonzero_numpy",
    "masked_select",
    "equal",
    "allclose",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "is_nonzero",
    "linspace.Tensor_Tensor",
    "linspace.Tensor_Scalar",
    "linspace.Scalar_Tensor",
    "_linalg_check_errors",
    "_linalg_svd",
    "_linalg_eigh",
    "linalg_eig",
    "linalg_lstsq",
    "_coalesce",
    "_to_sparse",
    "normal.Tensor_Tensor",
    "normal.float_Tensor",
    "_ctc_loss.Tensor",
    "is_all_true",
    "_is_all_true",
    "_is_any_true",
}
_SOMETIMES = {"repeat_interleave.Tensor", "multinomial", "histc"}
MASKS = (torch.bool, torch.uint8)


def kind_of(full: str, base: str) -> str | None:
    """What the report calls the wait of the operator named ``full`` (``base`` without overload); None without one."""
    return base if full in _ALWAYS or base in _ALWAYS or full in _SOMETIMES or base in _SOMETIMES else None


def waits(full: str, given: dict[str, Any]) -> bool:
    """Whether this call of an operator that ``kind_of`` knows waits; ``given`` maps its arguments by name."""
    if full == "repeat_interleave.Tensor":
        return given.get("output_size") is None
    if full == "multinomial":  # its probabilities are checked on the host where it draws without replacement
        return not given.get("replacement", False) or given.get("num_samples") == 1
    if full == "histc":
        return bool(given.get("min", 0) == given.get("max", 0))
    return True


def fills_by_mask(given: dict[str, Any]) -> bool:
    """``x[mask] = number``: torch fills by the mask instead of counting its positions."""
    value, indices = given.get("values"), given.get("indices")
    if given.get("accumulate") or not isinstance(value, torch.Tensor) or not isinstance(indices, Sequence):
        return False
    masks = [index for index in indices if index is not None]
    return value.numel() == 1 and len(masks) == 1 and masks[0].dtype in MASKS
