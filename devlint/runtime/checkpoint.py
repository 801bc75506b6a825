"""Checkpoints that survive a crash: written beside the old one, checked when read, the last good one kept."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.dtype, torch.device, torch.Size)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or does not fit the objects that are to be loaded."""


class _Damaged(Exception):
    """torch cannot make out the file."""


_written: dict[Path, tuple[int, ...]] = {}  # files that are known to be good, and what tells that they are the same


def save_checkpoint(path: str | os.PathLike[str], **objects: Any) -> None:
    """Write a checkpoint that is either all there or not there, even if the process is killed or power fails.

    It is written to a temporary file in the same folder, flushed to the disk (fsync), and renamed over ``path``. What
    was there before is kept as ``<path>.previous``. With several processes, call it in one of them.

    Args:
        path: the file; its folder is made if need be.
        objects: by name: anything with ``state_dict()`` (model, optimizer, scheduler, scaler, TrainStep), or plain
            values: numbers, strings, tensors, and lists, tuples and dicts of them.

    Raises:
        TypeError: for a value that ``torch.load(weights_only=True)`` would refuse, with its place. Nothing is written.
        OSError: if it cannot be written; what was there before stays.

    Source: `torch.load` (``weights_only``) in the PyTorch documentation; rename(2), fsync(2).
    """
    target = Path(path)
    content = {name: item.state_dict() if hasattr(item, "state_dict") else item for name, item in objects.items()}
    for name, value in content.items():
        _require_plain(value, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")  # always the same, so that kills leave one file at most
    with open(temporary, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    _keep(target)
    os.replace(temporary, target)
    _written[target.absolute()] = _identity(target)
    _sync_folder(target.parent)


def load_checkpoint(path: str | os.PathLike[str], **objects: Any) -> dict[str, Any]:
    """Read a checkpoint and load it into objects.

    The file is checked first. If it is damaged or missing, ``<path>.previous`` is taken, with a warning that says so.
    Nothing is unpickled but tensors and plain values (``weights_only=True``). Tensors are read to the CPU; the
    objects' own ``load_state_dict`` takes them to where their parameters are.

    Args:
        path: as given to ``save_checkpoint``.
        objects: by the names they were saved under; each needs ``load_state_dict``.

    Returns:
        all other entries of the checkpoint.

    Raises:
        FileNotFoundError: if there is neither the file nor a previous one.
        CheckpointError: if neither can be read, an object is not in the checkpoint, or does not fit (a model of other
            shapes, say); the object and the reason are named.
        TypeError: for an object without ``load_state_dict``.
    """
    for name, item in objects.items():
        if not hasattr(item, "load_state_dict"):
            raise TypeError(
                f"load_checkpoint: {name} is a {type(item).__name__}, which has no load_state_dict; plain values are "
                f"returned: load_checkpoint(path)[{name!r}]"
            )
    source, content = _read_newest(Path(path))
    missing = [name for name in objects if name not in content]
    if missing:
        raise CheckpointError(f"{source} has no {', '.join(missing)}; it has {', '.join(content) or 'nothing'}")
    for name, item in objects.items():
        try:
            item.load_state_dict(content.pop(name))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{source}: its {name!r} does not fit {type(item).__name__}: {error}") from error
    return content


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint to load, be it the previous one."""
    return any(candidate.exists() for candidate in _candidates(Path(path)))


def _candidates(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(path.name + ".previous")


def _read_newest(path: Path) -> tuple[Path, dict[str, Any]]:
    problems: list[str] = []
    for candidate in _candidates(path):
        problem = _damage(candidate)
        if not problem:
            try:
                content = _read(candidate)
            except _Damaged as damaged:
                problem = str(damaged)
        if not problem:
            if problems:
                warnings.warn(
                    f"checkpoint {problems[0]}; going on from the one before it, {candidate}",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return candidate, content
        problems.append(f"{candidate} {problem}")
    if not exists(path):
        raise FileNotFoundError(f"no checkpoint {path}")
    raise CheckpointError(f"no checkpoint that can be read: {'; '.join(problems)}")


def _damage(path: Path) -> str:
    """What is wrong with a file; empty if nothing. torch does not look at the checksums that it writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except Exception as error:  # zipfile meets damage with many kinds of errors
        return f"is damaged ({error})"
    return f"is damaged (checksum of {bad})" if bad else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path} holds more than tensors and plain values, so it is not loaded: loading could run code. It was not "
            f"written by save_checkpoint ({reason})"
        ) from None
    except RuntimeError as error:
        raise _Damaged(f"is damaged ({str(error).splitlines()[0].partition('. ')[0]})") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}; it was not written by save_checkpoint")
    return content


def _keep(path: Path) -> None:
    """Make the present file the previous one, without a moment in which there is none. A broken one is not kept."""
    if not path.exists() or (_written.get(path.absolute()) != _identity(path) and _damage(path)):
        return
    previous = _candidates(path)[1]
    link = path.with_name(f".{path.name}.link")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # a file system without hard links: for a moment only the previous one is there
        os.replace(path, previous)
    else:
        os.replace(link, previous)


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _require_plain(value: Any, path: str) -> None:
    if isinstance(value, Mapping) and type(value) in (dict, OrderedDict, Counter):
        for key, item in value.items():
            _require_plain(key, f"{path}'s key")
            _require_plain(item, f"{path}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for index, item in enumerate(value):
            _require_plain(item, f"{path}[{index}]")
    elif not (type(value) in _PLAIN or isinstance(value, torch.Tensor)):
        raise TypeError(
            f"save_checkpoint: {path} is a {type(value).__module__}.{type(value).__qualname__}, which a safe load "
            "(weights_only=True) refuses; save a number, a string, a tensor, or a list or dict of them instead"
        )
