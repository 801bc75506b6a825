"""Operators that check devices in their own words, not through TensorIterator or the generated wrapper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Named = Mapping[str, tuple[torch.Tensor, Any]]  # argument -> (tensor, device)

TYPE_NAMES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}


def type_name(tensor: torch.Tensor, device: Any) -> str:
    """``torch.cuda.FloatTensor`` and the like."""
    where = "" if device.type == "cpu" else f"{device.type}."
    return f"torch.{where}{TYPE_NAMES.get(tensor.dtype, '')}Tensor"


def _convolution(given: Named) -> str:
    image, weight, bias = given["input"], given["weight"], given.get("bias")
    other, name = (weight, "weight") if weight[1] != image[1] or bias is None else (bias, "bias")
    return f"Input type ({type_name(*image)}) and {name} type ({type_name(*other)}) should be the same"


def _masked_fill(given: Named) -> str:
    own, mask = given["self"][1], given["mask"][1]
    if own == mask:
        return "masked_fill_: Expected inputs to be on same device"
    return f"expected self and mask to be on the same device, but got mask on {mask} and self on {own}"


def _grid_sampler(given: Named) -> str:
    return (
        f"grid_sampler(): expected input and grid to be on same device, but input is on {given['input'][1]} and grid "
        f"is on {given['grid'][1]}"
    )


def _sparse(given: Named) -> str:
    return f"device of indices ({given['indices'][1]}) must match device of values ({given['values'][1]})"


def _ctc(given: Named) -> str:
    odd = given["targets"][1]
    return (
        f"Expected tensor to have {given['log_probs'][1].type.upper()} Backend, but got tensor with "
        f"{odd.type.upper()} Backend (while checking arguments for ctc_loss_gpu)"
    )


_TEXTS: dict[str, Callable[[Named], str]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill,
    "grid_sampler_2d": _grid_sampler,
    "grid_sampler_3d": _grid_sampler,
    "sparse_coo_tensor": _sparse,
    "_sparse_coo_tensor_with_dims_and_tensors": _sparse,
    "_ctc_loss": _ctc,
}


def text_of(base: str, given: Named) -> str:
    """The text of operator ``base`` for arguments on several devices; '' where it has none of its own."""
    make = _TEXTS.get(base)
    if make is None:
        return ""
    try:
        return make(given)
    except KeyError:  # an overload without that argument
        return ""
