"""``torch.device`` that knows a bare number, and the parsing of ``.to(0)``: C++ has no accelerator to number."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse import private_api
from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import Rehearsal

_Real: Any = torch.device


class _DeviceType(type):
    """Equal to torch's own type, and true for its instances, which are all that is ever made."""

    kind = "cuda"

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and _number(args[0]) and not kwargs:
            return _Real(cls.kind, args[0])
        return _Real(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _Real

    def __hash__(cls) -> int:
        return hash(_Real)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def install(session: Rehearsal, patches: Patches) -> None:
    """Replace ``torch.device`` and the parser behind ``Module.to`` for this rehearsal."""
    name = {"__module__": "torch", "__qualname__": "device", "__doc__": _Real.__doc__}
    stand_in = _DeviceType("device", (), name)
    stand_in.kind = session.kind
    patches.set(torch, "device", stand_in)
    patches.set(private_api.C._nn, "_parse_to", lambda *args, **kwargs: parse_to(session, args, kwargs))


def parse_to(session: Rehearsal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """(device, dtype, non_blocking, memory_format) of the arguments of ``.to``."""
    if args and _number(args[0]):
        args = (session.resolve(args[0]), *args[1:])
    if _number(kwargs.get("device")):
        kwargs = {**kwargs, "device": session.resolve(kwargs["device"])}
    with private_api.no_torch_function():
        return private_api.parse_to(*args, **kwargs)
