"""The arguments of `torch.utils.data.DataLoader`, by keyword or position."""

from __future__ import annotations

from devlint.edits import argument
from devlint.lazycst import cst

DATA_LOADER = "torch.utils.data.DataLoader"
_POSITIONS = {
    name: index
    for index, name in enumerate(
        "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout "
        "worker_init_fn multiprocessing_context generator".split()
    )
}


def option(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument of a DataLoader call that sets `name`; None where it is left at its default."""
    return argument(call, name, _POSITIONS.get(name))


def is_literal(arg: cst.Arg | None, *values: str) -> bool:
    """Whether an argument is one of the names or numbers `values`, as written."""
    return arg is not None and isinstance(arg.value, (cst.Name, cst.Integer)) and arg.value.value in values


def is_set(arg: cst.Arg | None) -> bool:
    """Whether an argument is given and is not literally `None`, `False` or `0`."""
    return arg is not None and not is_literal(arg, "None", "False", "0")
