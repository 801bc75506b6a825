"""The errors of devlint.runtime. All are RuntimeErrors, as torch's own device errors are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN = 6


class DeviceMismatchError(RuntimeError):
    """Tensors that belong together are on different devices.

    ``devices`` maps the path of every tensor that was looked at (``"batch['x'][0]"``) to its device.
    """

    def __init__(self, message: str, devices: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.devices: dict[str, Any] = dict(devices or {})


class MixedDeviceError(RuntimeError):
    """A module's parameters and buffers are on several devices.

    ``devices`` maps the name of every parameter and buffer (``"fc.weight"``) to its device.
    """

    def __init__(self, message: str, devices: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.devices: dict[str, Any] = dict(devices or {})


class DeviceUnavailableError(RuntimeError):
    """A device was asked for that this process cannot use; the message says why and what to do."""


def by_device(devices: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """One line a device: ``  cpu: batch['mask'], batch['y']``; the largest group first, long groups cut short."""
    groups: dict[str, list[str]] = {}
    for path, device in devices.items() if isinstance(devices, Mapping) else devices:
        groups.setdefault(str(device), []).append(path)
    lines = []
    for device, paths in sorted(groups.items(), key=lambda group: -len(group[1])):
        more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
        lines.append(f"  {device}: {', '.join(paths[:SHOWN])}{more}")
    return "\n".join(lines)
