"""DLPack: a device tensor that is exported and read back stays on its device; NumPy refuses it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import Rehearsal


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for ``to_dlpack``, ``from_dlpack`` and NumPy's reader."""
    dlpack: Any = importlib.import_module("torch.utils.dlpack")
    exported: dict[int, Any] = {}  # address -> device, until it is read back
    export: Any = torch.Tensor.__dlpack__
    read: Any = dlpack.from_dlpack
    to_capsule: Any = dlpack.to_dlpack

    def noted(tensor: torch.Tensor) -> None:
        device = session.device_of(tensor)
        if session.rehearsed(device):
            exported[tensor.data_ptr()] = device

    def exporting(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        noted(tensor)
        return export(tensor, *args, **kwargs)

    def to_dlpack(tensor: torch.Tensor) -> Any:
        noted(tensor)
        return to_capsule(tensor)

    def from_dlpack(source: Any, **options: Any) -> torch.Tensor:
        result: torch.Tensor = read(source, **options)
        device = exported.pop(result.data_ptr(), None)
        if device is not None:
            session.place(result, device, "read")
        return result

    patches.set(torch.Tensor, "__dlpack__", exporting)
    patches.set(dlpack, "to_dlpack", to_dlpack)
    for module in (torch, dlpack):
        patches.set(module, "from_dlpack", from_dlpack)
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return
    read_array = getattr(numpy, "from_dlpack", None)
    if read_array is None:
        return  # before NumPy 1.23

    def array_of(source: Any, /, **options: Any) -> Any:
        if isinstance(source, torch.Tensor) and session.rehearsed(session.device_of(source)):
            raise session.fail("Unsupported device in DLTensor.", "from_dlpack", "TDL107", error=RuntimeError)
        return read_array(source, **options)

    patches.set(numpy, "from_dlpack", array_of)
