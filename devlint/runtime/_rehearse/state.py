"""The state of one rehearsal: its devices, tags and report, and what the layers ask of it."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from devlint.runtime._rehearse import frames
from devlint.runtime._rehearse.private_api import no_torch_function, real_device, sequence_number
from devlint.runtime._rehearse.report import Ledger, Mismatch, Report, TensorInfo
from devlint.runtime._rehearse.tags import Tags
from devlint.runtime.errors import DeviceMismatchError

KINDS = ("cuda", "xpu", "mps")
# texts of torch's own Python and C++ checks, which hold on the CPU too, and the rule about each
_KNOWN = (
    ("Cannot re-initialize", "TDL301"),
    ("unscale_() has already been called", "TDL407"),
    ("No inf checks were recorded", "TDL405"),
    ("Attempting to unscale FP16 gradients", "TDL409"),
    ("step() has already been called since the last update", "TDL405"),
    ("unscale_() is being called after step()", "TDL407"),
    ("must have the same dtype", ""),
    ("to have the same dtype", ""),
    ("Got unsupported ScalarType BFloat16", "TDL107"),
    ("for attribute 'device' do not match", "TDL103"),
    ("Found two parameters on different devices", "TDL103"),
    ("but found one of them on device", "TDL104"),
    ("expected scalar type", ""),
    ("same device", "TDL103"),
    ("module must have its parameters and buffers on device", "TDL103"),
    ("should be the same", ""),
    ("expected m1 and m2 to have the same dtype", ""),
)
_MOST_LINES = 200_000


class RehearsedDeviceError(DeviceMismatchError):
    """A device error that the rehearsed device would raise; a ``RuntimeError``, as torch's own are."""


class RehearsalUnsupported(NotImplementedError):
    """The program uses something that the rehearsal can't stand in for."""


class Internal:
    """The device of a tensor that C++ made on its own: it takes the device of whatever it meets."""

    type = "internal"
    index = None

    def __repr__(self) -> str:
        return "internal"


INTERNAL: Any = Internal()
CPU = torch.device("cpu")


class Rehearsal:
    """One rehearsed machine with ``count`` devices of ``kind``, running in this process."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.devices = [torch.device(kind, index) for index in range(count)]
        self.current = 0
        self.tags = Tags(CPU)
        self.entries = self.tags.entries
        self.report = Report(kind, count, torch.__version__)
        self.ledger = Ledger(self.report)
        self.operators = 0
        self.pid = os.getpid()
        self.initialised = False  # the device was used: forked processes may not use it any more
        self.call: tuple[Any, Any, Any] | None = None
        self.explicit = False
        self.internals = 0
        self.on_host = 0  # inside a custom operator's kernel, which runs as the CPU's
        self.amp: torch.dtype | None = None  # autocast's dtype on the device, and on the host
        self.host_amp: torch.dtype | None = None
        self.poison = False
        self.sync_debug = 0  # as ``torch.cuda.set_sync_debug_mode`` counts: 1 warns, 2 raises
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.lines: dict[int, tuple[Any, int]] = {}
        self.host_only: dict[Any, Any] = {}  # functions that read device values on the CPU only -> when
        self.folder = ""  # where spawned processes leave their reports
        self.owns_folder = False

    # devices
    def resolve(self, spec: Any) -> torch.device | None:
        """The rehearsed device that ``spec`` names; None where it names another kind of device.

        Raises ``RuntimeError`` with CUDA's text for an ordinal that isn't there and for a forked process.
        """
        if spec is None:
            return None
        if isinstance(spec, int) and not isinstance(spec, bool):
            spec = torch.device(self.kind, spec)
        elif isinstance(spec, str):
            spec = torch.device(spec)
        if not isinstance(spec, torch.device) or spec.type != self.kind:
            return None
        self.check_process()
        index = self.current if spec.index is None else spec.index
        if not 0 <= index < len(self.devices):
            raise self._no_such_device(spec, index)
        return self.devices[index]

    def _no_such_device(self, spec: torch.device, index: int) -> Exception:
        count = len(self.devices)
        text, error = f"The device index is out of range. It must be in [0, {count}), but got {index}.", RuntimeError
        if self.kind == "cuda":
            text, error = "CUDA error: invalid device ordinal", getattr(torch, "AcceleratorError", RuntimeError)
        text = f"{text}\n  {spec} asked for, {count} device(s) rehearsed"
        return self.fail(text, "device", "TDL706", error=error)

    def check_process(self) -> None:
        """Refuse device work in a forked process, as CUDA does once its parent has used the device.

        A loader's workers are always refused: what they make has to come back to a parent that uses it.
        """
        if os.getpid() == self.pid:
            self.initialised = True
        elif self.initialised or torch.utils.data.get_worker_info() is not None:
            name = self.kind.upper()
            raise self.fail(
                f"Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, "
                "you must use the 'spawn' start method",
                "device",
                "TDL301",
                error=RuntimeError,
            )

    def device_of(self, tensor: torch.Tensor) -> Any:
        """Where ``tensor`` lives: a rehearsed device, the CPU, another real device, or ``INTERNAL``."""
        tag = self.tags.get(tensor) if not self.on_host else None
        if tag is not None:
            return tag.device
        with no_torch_function():
            device = real_device(tensor)
        return CPU if device.type == "cpu" else device

    def shown_device(self, tensor: torch.Tensor) -> torch.device:
        """What ``tensor.device`` says."""
        device = self.device_of(tensor)
        return self.devices[self.current] if device is INTERNAL else device

    def rehearsed(self, device: Any) -> bool:
        """Whether ``device`` is one of this rehearsal's."""
        return bool(device.type == self.kind)

    def place(self, tensor: torch.Tensor, device: Any, verb: str = "", pinned: bool = False) -> None:
        """Tag ``tensor`` as living on ``device``; with a ``verb``, remember the user's line."""
        origin = (verb, *frames.user_line()) if verb else None
        self.tags.set(tensor, device, origin, pinned)

    def pinned(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is in pinned host memory."""
        tag = self.tags.get(tensor)
        return tag is not None and tag.pinned

    # records
    def sync(self, kind: str) -> None:
        """Count a host sync at the user's line."""
        if self.call is not None and self.call[0] in self.host_only:
            _, args, kwargs = self.call
            if self.host_only[self.call[0]](args, kwargs):
                return
        self.settle()
        self.ledger.sync(kind, *frames.user_line())
        if self.sync_debug and not kind.endswith("synchronize"):
            self._debug_sync()

    def transfer(self, source: Any, target: Any, tensor: torch.Tensor, non_blocking: bool) -> None:
        """Count a copy of ``tensor`` between devices, and the sync that a device-to-host copy is."""
        if self.rehearsed(target):
            direction = "D2D" if self.rehearsed(source) else "H2D"
        else:
            direction = "D2H"
        with no_torch_function():
            nbytes = tensor.numel() * tensor.element_size()
        file, line = frames.user_line()
        self.ledger.transfer(direction, nbytes, self.pinned(tensor), non_blocking, file, line)
        if direction == "D2H" and non_blocking:
            self.report.note(
                f"{frames.shown(file)}:{line}: non_blocking device-to-host copy: "
                "read it only after a synchronize, else it may hold old data (TDL205)"
            )
        elif direction == "D2H":
            self.settle()
            self.ledger.sync("device-to-host copy", file, line)
        if self.sync_debug and direction != "D2D" and not non_blocking:
            self._debug_sync()

    def _debug_sync(self) -> None:
        """What ``torch.cuda.set_sync_debug_mode`` asks for at a wait, or at a blocking copy."""
        text = "called a synchronizing CUDA operation"
        if self.sync_debug == 2:
            raise self.fail(text, "synchronize", "TDL207", error=RuntimeError)
        warnings.warn(text, stacklevel=2)

    def settle(self) -> None:
        """A sync happened: poisoned device-to-host copies now hold their data."""
        if self.pending:
            pending, self.pending = self.pending, []
            with no_torch_function(), torch.no_grad():
                for target, data in pending:
                    target.copy_(data)

    def remember_line(self) -> None:
        """Note the user's line for the autograd node that is being built, for errors in its backward."""
        lines = self.lines
        number = sequence_number()
        if number in lines:
            return
        frame = frames.user_frame(3)
        if frame is None:
            return
        lines[number] = (frame.f_code, frame.f_lineno)
        if len(lines) > _MOST_LINES:
            for key in list(lines)[: _MOST_LINES // 2]:
                del lines[key]

    def forward_line(self, node: Any) -> str:
        """``file:line`` of the forward call whose backward ``node`` runs, or ''."""
        number = node._sequence_nr() if hasattr(node, "_sequence_nr") else -1
        found = self.lines.get(number + 1)
        return f"{frames.shown(found[0].co_filename)}:{found[1]}" if found is not None else ""

    def record(self, error: Exception) -> None:
        """Note an error that torch itself raised as it would on the device, unless ``fail`` noted it already."""
        text = str(error)
        known = next((rule for part, rule in _KNOWN if part in text), None)
        if known is None or any(found.message in text for found in self.report.mismatches):
            return
        trace, place = error.__traceback__, ("?", 0)
        while trace is not None:
            if not frames.is_foreign(trace.tb_frame.f_code):
                place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            trace = trace.tb_next
        self.report.mismatches.append(Mismatch(text, "", *place, known))

    def fail(
        self,
        message: str,
        operator: str,
        rule: str,
        tensors: tuple[TensorInfo, ...] = (),
        forward: str = "",
        error: type[Exception] = RehearsedDeviceError,
    ) -> Exception:
        """Record a device error and return the exception to raise: CUDA's text, then the tensors."""
        file, line = frames.user_line()
        lines = [message, *(f"  {tensor}" for tensor in tensors)]
        if forward:
            lines.append(f"  in the backward of the call at {forward}")
        if rule:
            lines.append(f"  see: devlint rule {rule}")
        text = "\n".join(lines)
        self.report.mismatches.append(Mismatch(text, operator, file, line, rule, tensors, forward))
        raised = error(text)
        if isinstance(raised, DeviceMismatchError):
            raised.devices = {tensor.argument: torch.device(tensor.device) for tensor in tensors}
        return raised
