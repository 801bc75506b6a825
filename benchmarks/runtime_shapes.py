"""Which batches each library's mover gets right: 33 shapes, moved to ``meta``, in one Markdown table.

    python benchmarks/runtime_shapes.py

``ok``: the tensors moved, types, attributes and shared tensors kept. ``left``: a tensor stayed on the CPU, in silence.
``type``: the container came back as another type or without its attributes. ``alias``: a shared tensor became two.
Else the name of the error. Libraries that are not installed are left out and named below the table; so are
BatchEncoding and TensorDict without transformers and tensordict.
"""

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "runtime"))

from shapes import SHAPES, Shape, verdict

from devlint.runtime import to_device

DEVICE = torch.device("meta")
Mover = Callable[[Any], Any]

LIBRARIES = {
    "accelerate": ("accelerate.utils", "send_to_device"),
    "Lightning": ("lightning_fabric.utilities", "move_data_to_device"),
    "ignite": ("ignite.utils", "convert_tensor"),
    "torchtnt": ("torchtnt.utils", "copy_data_to_device"),
}


def movers() -> tuple[dict[str, Mover], list[str]]:
    """The movers that can be imported, by name, and the names of the others."""
    from torch.utils import _pytree

    def leaf(item: Any) -> Any:
        return item.to(DEVICE) if isinstance(item, torch.Tensor) else item

    found: dict[str, Mover] = {
        "devlint": lambda batch: to_device(batch, DEVICE),
        "torch pytree": lambda batch: _pytree.tree_map(leaf, batch),
    }
    missing = []
    for name, (module, function) in LIBRARIES.items():
        try:
            mover = getattr(importlib.import_module(module), function)
        except Exception as error:
            missing.append(f"{name} ({type(error).__name__})")
            continue
        found[name] = lambda batch, mover=mover: mover(batch, DEVICE)
    return found, missing


def foreign_shapes() -> tuple[dict[str, Shape], list[str]]:
    found: dict[str, Shape] = {}
    missing = []
    try:
        from transformers.tokenization_utils_base import BatchEncoding

        found["BatchEncoding"] = (lambda: BatchEncoding({"ids": torch.zeros(2)}), lambda r: [r["ids"]])
    except Exception as error:
        missing.append(f"BatchEncoding ({type(error).__name__})")
    try:
        from tensordict import TensorDict

        found["TensorDict"] = (lambda: TensorDict({"a": torch.zeros(2)}, batch_size=[2]), lambda r: [r["a"]])
    except Exception as error:
        missing.append(f"TensorDict ({type(error).__name__})")
    return found, missing


def outcome(shape: Shape, mover: Mover) -> str:
    make, tensors = shape
    batch = make()
    try:
        return verdict(batch, mover(batch), tensors, DEVICE.type)
    except Exception as error:
        return type(error).__name__


def main() -> None:
    warnings.simplefilter("ignore")
    libraries, missing = movers()
    extra, missing_shapes = foreign_shapes()
    shapes = {**SHAPES, **extra}
    rows = {title: [outcome(shape, mover) for mover in libraries.values()] for title, shape in shapes.items()}
    print(f"| batch | {' | '.join(libraries)} |")
    print("|---|" + "---|" * len(libraries))
    for title, cells in rows.items():
        print(f"| {title} | {' | '.join(cells)} |")
    counts = [sum(cells[index] == "ok" for cells in rows.values()) for index in range(len(libraries))]
    print(f"| **right, of {len(rows)}** | " + " | ".join(f"**{count}**" for count in counts) + " |")
    if missing or missing_shapes:
        print(f"\nNot installed here: {', '.join(missing + missing_shapes)}.")


if __name__ == "__main__":
    main()
