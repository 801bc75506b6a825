"""The user's own line behind a call: the nearest frame outside torch, the standard library and this package."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType, FrameType

from devlint.runtime._rehearse.private_api import TORCH_FOLDER

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = tuple(os.path.join(_STDLIB, name) for name in ("site-packages", "dist-packages"))
# id(code) -> (foreign, code): the hash of a code object is that of its whole contents
_foreign: dict[int, tuple[bool, CodeType]] = {}
_foreign_ids: set[int] = set()


def is_foreign(code: CodeType) -> bool:
    """Whether ``code`` is torch's, Python's or ours, so not a place the user can change."""
    known = _foreign.get(id(code))
    if known is None:
        name = code.co_filename
        foreign = (
            f"{os.sep}numpy{os.sep}" in name
            or name.startswith((TORCH_FOLDER, _HERE, "<frozen", "<__array_function__", "<eval_with_key"))
            or ("torch/_" in name and name.startswith("<"))
            or (name.startswith(_STDLIB) and not name.startswith(_PACKAGES))
        )
        known = _foreign[id(code)] = (foreign, code)
        if foreign:
            _foreign_ids.add(id(code))
    return known[0]


def user_frame(depth: int = 1) -> FrameType | None:
    """The nearest user frame above the caller; None where torch runs without one (its own threads)."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if id(code) not in _foreign_ids and not is_foreign(code):
            break
        frame = frame.f_back
    return frame


def user_frames() -> list[FrameType]:
    """All frames from the innermost, those of torch and Python included, ours left out."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_HERE):
            frames.append(frame)
        frame = frame.f_back
    return frames


def user_line() -> tuple[str, int]:
    """(file, line) of the user's call, ("?", 0) where there is none."""
    frame = user_frame(2)
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)


def shown(path: str) -> str:
    """``path`` relative to the working directory where it lies below it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return path
    return path if relative.startswith("..") else relative
