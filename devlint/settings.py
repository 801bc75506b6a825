"""What a run is asked to look for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The part of the configuration that the engine and the rules read.

    `enabled` holds the codes of the rules to run. `target_torch` is the oldest torch release that the checked code
    must run on, None for the newest; a fix never uses what that release lacks. `fix_style` is `"torch"` for fixes in
    plain torch, `"runtime"` for fixes that call `devlint.runtime`.
    """

    enabled: frozenset[str]
    target_torch: tuple[int, int] | None = None
    fix_style: str = "torch"

    def targets(self, major: int, minor: int) -> bool:
        """Whether code that needs torch `major.minor` runs on every release that is targeted."""
        return self.target_torch is None or self.target_torch >= (major, minor)
