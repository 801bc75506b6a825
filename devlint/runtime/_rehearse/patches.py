"""Attributes replaced while a rehearsal runs, and put back after it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

_MISSING = object()


class Patches:
    """Replace attributes of modules and classes; ``undo`` restores them in reverse."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set ``owner.name`` and return what was there before (inherited attributes stay where they are)."""
        own = vars(owner).get(name, _MISSING)
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        if own is _MISSING:
            self._stack.callback(delattr, owner, name)
        else:
            self._stack.callback(setattr, owner, name, own)
        return before

    def call_after(self, function: Any, *args: Any) -> None:
        """Call ``function`` when the rehearsal ends."""
        self._stack.callback(function, *args)

    def enter(self, manager: Any) -> Any:
        """Enter a context manager for as long as the rehearsal runs."""
        return self._stack.enter_context(manager)

    def undo(self) -> None:
        """Put everything back."""
        self._stack.close()
