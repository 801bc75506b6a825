"""The tensor types of old, such as `torch.cuda.FloatTensor`: a dtype and a device in one name."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from devlint.edits import has_unpacking
from devlint.lazycst import cst
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
}
_TYPE = re.compile(rf"torch\.(cuda\.)?({'|'.join(_DTYPES)})Tensor")
CPU_TYPES = frozenset(f"torch.{name}Tensor" for name in ("", *_DTYPES))
CUDA_TYPES = frozenset(f"torch.cuda.{name}Tensor" for name in _DTYPES)
DEFAULT_DTYPE_SETTERS = frozenset(("set_default_dtype", "set_default_tensor_type"))
DEFAULT_DEVICE_SETTERS = frozenset(("set_default_device", "set_default_tensor_type", "default_device", "DeviceContext"))
# What `torch.FloatTensor(list)` does with a list depends on the list alone; these calls surely make one.
_LISTS = frozenset(("list", "sorted", "range"))


class TensorType(NamedTuple):
    """What a tensor type says: whether the tensor is on CUDA, and its dtype (empty for the default dtype)."""

    on_cuda: bool
    dtype: str


def tensor_type(name: str) -> TensorType | None:
    """What the tensor type of that qualified name says; None for any other name."""
    if name == "torch.Tensor":
        return TensorType(False, "")
    match = _TYPE.fullmatch(name)
    return TensorType(bool(match[1]), _DTYPES[match[2]]) if match else None


def argument_kind(call: cst.Call, names: Names, unit: Unit) -> Literal["data", "sizes", "refused", "unknown"]:
    """What a legacy constructor takes its positional arguments for.

    One sequence is data, integers are sizes; `refused` is what raises a TypeError: a generator, a set, a dict, a float.
    """
    if has_unpacking(call) or any(arg.keyword is not None and arg.keyword.value != "device" for arg in call.args):
        return "unknown"
    values = [arg.value for arg in call.args if arg.keyword is None]
    if all(_is_size(value) for value in values):
        return "sizes"
    if len(values) != 1:
        return "unknown"
    value = values[0]
    if isinstance(value, (cst.GeneratorExp, cst.SetComp, cst.Set, cst.Dict, cst.DictComp, cst.Float)):
        return "refused"
    return "data" if _is_sequence(value, names, unit) else "unknown"


def _is_sequence(node: cst.BaseExpression, names: Names, unit: Unit) -> bool:
    if isinstance(node, (cst.List, cst.Tuple, cst.ListComp)):
        return True
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Multiply)):
        return any(isinstance(side, (cst.List, cst.ListComp)) for side in (node.left, node.right)) or (
            isinstance(node.operator, cst.Add)
            and all(_is_sequence(side, names, unit) for side in (node.left, node.right))
        )
    if isinstance(node, cst.Call):
        # A built-in that the file binds may be anything, `from torch import *` brings a `range`; the file's own copy of the array is nobody else's.
        called = dotted(node.func)
        return (called in _LISTS and not names.stars and called not in names.bound and called not in names.aliases) or (
            names.qualified(node.func, unit) == "numpy.array"
        )
    return False


def _is_size(node: cst.BaseExpression) -> bool:
    """Whether `node` is surely an integer, or a `torch.Size`."""
    if isinstance(node, cst.Integer):
        return True
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Multiply, cst.FloorDivide)):
        return _is_size(node.left) and _is_size(node.right)
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value in ("size", "numel", "dim")
    return isinstance(node.func, cst.Name) and node.func.value in ("len", "int")
