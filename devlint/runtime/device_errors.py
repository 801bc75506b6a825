"""What torch's device errors say, as data. Works on text alone: torch is not imported here."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEVICE = r"(?:[a-z]+:\d+|[a-z]+)"


@dataclass(frozen=True)
class DeviceError:
    """One of torch's device errors.

    ``kind`` is ``mismatch``, ``index``, ``weight``, ``generator``, ``module``, ``numpy``, ``pin``, ``unavailable``,
    ``fork`` or ``deserialize``; ``devices`` are those the text names, in its order; ``argument`` and ``method`` are
    the operator's, where it names them; ``advice`` is what usually mends it.
    """

    kind: str
    devices: tuple[str, ...] = ()
    argument: str = ""
    method: str = ""
    advice: str = ""


_MOVE = (
    "move the tensor that is on the wrong device: a whole batch with devlint.runtime.to_device(batch, device), a new "
    "tensor by making it with device=other.device, a module's own tensor by registering it (register_buffer)"
)
_WEIGHT = (
    "move the input to the module's device: devlint.runtime.to_device(batch, device), or the module to the input's"
)
_INDEX = (
    "the index was made on another device than the tensor: make it with device=tensor.device; CPU indices are accepted, "
    "accelerator indices into a CPU tensor are not"
)

_PATTERNS: tuple[tuple[str, str, str], ...] = (
    ("fork", r"Cannot re-initialize (?P<d0>CUDA|XPU) in forked subprocess", "do not use the accelerator in DataLoader "
     "workers: return CPU tensors and move batches with devlint.runtime.DeviceLoader, or start workers with "
     "multiprocessing_context='spawn'"),
    ("index", rf"indices should be either on {_DEVICE} or on the same device as the indexed tensor \((?P<d0>{_DEVICE})\)",
     _INDEX),
    ("mismatch", rf"Expected all tensors to be on the same device, but got (?P<argument>\w+) is on (?P<d0>{_DEVICE}), "
     rf"different from other (?:tensors )?on (?P<d1>{_DEVICE})", _MOVE),
    ("mismatch", rf"Expected all tensors to be on the same device, but found at least two devices, (?P<d0>{_DEVICE}) and "
     rf"(?P<d1>{_DEVICE})", _MOVE),
    ("mismatch", rf"Expected all tensors to be on the same device.{{0,200}}?(?P<d0>{_DEVICE}:\d+)?", _MOVE),
    ("mismatch", rf"Tensor on device (?P<d0>{_DEVICE}) is not on the expected device (?P<d1>{_DEVICE})", _MOVE),
    ("mismatch", r"Tensor for (?:argument #\d+ )?'?(?P<argument>\w+)'? is on (?P<d0>\w+), but expected (?:it|them) to be "
     r"on (?P<d1>\w+)", _MOVE),
    ("mismatch", r"Expected object of (?:device type|backend) (?P<d0>\w+) but got (?:device type|backend) (?P<d1>\w+) for "
     r"argument #\d+ '(?P<argument>\w+)'", _MOVE),
    ("mismatch", r"Placeholder storage has not been allocated on (?P<d0>MPS) device", _MOVE),
    ("mismatch", rf"Unhandled FakeTensor Device Propagation for (?P<method>[\w.]+), found two different devices "
     rf"(?P<d0>{_DEVICE}), (?P<d1>{_DEVICE})", _MOVE),
    ("mismatch", r"(?P<argument>\w+) must be on the same (?:CUDA )?device", _MOVE),
    ("weight", r"Input type \((?P<d0>[\w.]+)\) and (?:weight|bias) type \((?P<d1>[\w.]+)\) should be the same", _WEIGHT),
    ("weight", r"Input and (?:hidden|parameter) tensors are not at the same device, found input tensor at "
     rf"(?P<d0>{_DEVICE}) and (?:hidden|parameter) tensor at (?P<d1>{_DEVICE})", _WEIGHT),
    ("generator", r"Expected a '?(?P<d0>[\w:]+)'? (?:device type|generator device) for generator but found '?(?P<d1>[\w:]+)'?",
     "make the generator on the tensors' device: torch.Generator(device=device)"),
    ("module", rf"module must have its parameters and buffers on device (?P<d0>{_DEVICE}) \(device_ids\[0\]\) but found one "
     rf"of them on device: (?P<d1>{_DEVICE})", "move the module to device_ids[0] before wrapping it"),
    ("numpy", r"can't convert (?P<d0>[\w:]+) device type tensor to numpy", "bring it to the host first: "
     "tensor.detach().cpu().numpy()"),
    ("pin", r"cannot pin '(?P<d0>[\w.]+)' only dense CPU tensors can be pinned", "pin_memory=True is for loaders of CPU "
     "tensors: set it to False, or use devlint.runtime.make_loader"),
    ("deserialize", r"Attempting to deserialize object on (?:a )?(?P<d0>CUDA|MPS|XPU|[a-z]+) device",
     "load to the CPU, torch.load(path, map_location='cpu', weights_only=True), and move the module afterwards"),
    ("unavailable", r"Torch not compiled with (?P<d0>\w+) enabled", "this build of torch lacks the device: take "
     "devlint.runtime.best_device(), or install a build that has it"),
    ("unavailable", r"Found no (?P<d0>NVIDIA) driver|No (?P<d1>CUDA|HIP|XPU) (?:GPUs|devices) are available|invalid device "
     r"ordinal", "the device is not visible to this process: devlint.runtime.best_device() says why"),
)  # fmt: skip
_COMPILED = tuple((kind, re.compile(pattern), advice) for kind, pattern, advice in _PATTERNS)
_METHOD = re.compile(r"\(when checking argument(?: for argument (?P<argument>\w+))? in method (?P<method>\w+)\)")


def parse_device_error(text: str) -> DeviceError | None:
    """What a device error of torch says, from its message or from a text (a traceback) that holds it; else None.

    Knows the wordings of torch 1.x to 2.13 for CUDA, XPU, MPS, meta and FakeTensor. Devices are given as torch names
    them: ``cuda:0``, ``cpu``; tensor types are turned into them: ``torch.cuda.FloatTensor`` is ``cuda``.
    """
    for kind, pattern, advice in _COMPILED:
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        devices = tuple(_device(groups[name]) for name in ("d0", "d1") if groups.get(name))
        argument, method = groups.get("argument") or "", groups.get("method") or ""
        where = _METHOD.search(text, match.start())
        if where is not None:
            argument, method = where["argument"] or argument, where["method"]
        return DeviceError(kind, devices, argument, method, advice)
    return None


def _device(name: str) -> str:
    if "Tensor" in name:
        parts = name.split(".")
        return parts[1] if len(parts) == 3 else "cpu"
    if name.startswith("MPS"):  # MPSFloatType
        return "mps"
    return {"GPU": "cuda", "NVIDIA": "cuda", "HIP": "cuda"}.get(name, name.lower())
