"""LibCST, imported when its first name is used.

`import libcst` takes 160 to 200 ms, more than the rest of a run over a small file. Rule modules write
``from devlint.lazycst import cst`` and pay for it only once a file holds something worth parsing.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst
else:

    class _LazyModule(ModuleType):
        def __getattr__(self, name: str) -> Any:
            self.__dict__.update(importlib.import_module(self.__name__).__dict__)
            try:
                return self.__dict__[name]
            except KeyError:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    cst = _LazyModule("libcst")

__all__ = ["cst"]
