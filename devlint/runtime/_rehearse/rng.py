"""Random generators on a rehearsed device: CPU generators that say where they live."""

from __future__ import annotations

from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.state import CPU, Rehearsal

_Base: Any = torch._C.Generator
_session: list[Rehearsal] = []


def running_session() -> Any:
    """The rehearsal of this process; None where none runs."""
    return _session[-1] if _session else None


def device_of_generator(generator: Any, session: Rehearsal) -> torch.device:
    """Where ``generator`` lives."""
    device = getattr(generator, "rehearsed_device", None)
    return device if isinstance(device, torch.device) else CPU


class _GeneratorType(type(_Base)):  # type: ignore[misc]
    """``isinstance(x, torch.Generator)`` holds for torch's own generators too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Base)


class RehearsedGenerator(_Base, metaclass=_GeneratorType):  # type: ignore[misc]
    """``torch.Generator`` while a rehearsal runs: the host's generator, tagged with the device asked for."""

    rehearsed_device: torch.device

    def __new__(cls, device: Any = "cpu") -> Any:
        session = _session[-1]
        target = session.resolve(device)
        if target is None:
            return _Base(device)
        made = _Base.__new__(cls)
        made.rehearsed_device = target
        return made

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:
        """The device asked for."""
        return self.rehearsed_device

    def set_state(self, new_state: torch.Tensor) -> Any:
        """Set the state; raises ``TypeError`` for one that lies on a device."""
        refuse_device_state(_session[-1], new_state)
        return super().set_state(new_state)

    def __reduce__(self) -> Any:
        return (_rebuilt, (str(self.rehearsed_device), self.get_state()))


def _rebuilt(device: str, state: torch.Tensor) -> Any:
    made = RehearsedGenerator(device) if _session else _Base()
    made.set_state(state)
    return made


def refuse_device_state(session: Rehearsal, state: Any) -> None:
    """A generator's state is a host tensor, whatever the generator's device."""
    if isinstance(state, torch.Tensor) and session.rehearsed(session.device_of(state)):
        raise session.fail("RNG state must be a torch.ByteTensor", "set_rng_state", "TDL604", error=TypeError)


def install(session: Rehearsal, patches: Patches) -> None:
    """Stand in for ``torch.Generator`` and ``torch.set_rng_state``."""
    _session.append(session)
    patches.call_after(_session.pop)
    patches.set(torch, "Generator", RehearsedGenerator)
    real: Any = torch.set_rng_state

    def set_rng_state(new_state: torch.Tensor) -> None:
        refuse_device_state(session, new_state)
        real(new_state)

    patches.set(torch, "set_rng_state", set_rng_state)
    patches.set(torch.random, "set_rng_state", set_rng_state)


class RandomState:
    """``torch.cuda``'s random functions. The rehearsed devices draw from the host's generator."""

    def __init__(self, session: Rehearsal) -> None:
        self.session = session

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """The host generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device: Any = None) -> None:
        """Set the host generator's state; raises ``TypeError`` for a state that lies on a device."""
        torch.set_rng_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """One state a device."""
        return [torch.get_rng_state() for _ in self.session.devices]

    def set_rng_state_all(self, new_states: Any) -> None:
        """Set the states got by ``get_rng_state_all``."""
        for state in new_states:
            self.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        """Seed the host generator, which the rehearsed devices share."""
        torch.default_generator.manual_seed(int(seed))

    def seed(self) -> None:
        """Seed by chance."""
        torch.default_generator.seed()

    def initial_seed(self) -> int:
        """The seed in use."""
        return int(torch.default_generator.initial_seed())
