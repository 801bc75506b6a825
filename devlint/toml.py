"""TOML files, read by the standard library's parser, or by `tomli` before Python 3.11."""

from __future__ import annotations

import importlib
import sys
from typing import Any


class TomlError(ValueError):
    """The text is not TOML; the message says where."""


def read_toml(data: bytes) -> dict[str, Any]:
    """The content of a TOML file. Raises TomlError."""
    parser = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        content: dict[str, Any] = parser.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise TomlError(str(error)) from None
    return content
