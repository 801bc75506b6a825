"""The deprecation table against the torch that is installed."""

import contextlib
import importlib
import inspect
import warnings
from typing import Any

import pytest
import torch

from devlint.checks.deprecated.table import DROPPED, SYMBOLS, Symbol

MISSING = object()


def resolve(name: str) -> Any:
    """What a dotted torch name stands for, submodules imported on the way; MISSING where there is no such thing."""
    found: Any = torch
    parts = name.split(".")
    for index, part in enumerate(parts[1:], 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[: index + 1]))
            except ImportError:
                return MISSING
    return found


def says_deprecated(name: str) -> bool:
    """Whether reading or calling the name warns, or its documentation or source calls it deprecated."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = getattr(resolve(name.rpartition(".")[0]), name.rpartition(".")[2])
        text = getattr(found, "__doc__", None) or ""
        if "_autocast_" in name:
            # These are built in: only a call tells. Setters are given what is set already.
            device = name.split("_autocast_")[1].split("_")[0].replace("gpu", "cuda")
            value = torch.get_autocast_dtype(device) if name.endswith("dtype") else torch.is_autocast_enabled(device)
            found(value) if ".set_" in name else found()
    if any("deprecat" in str(warning.message).lower() for warning in caught):
        return True
    with contextlib.suppress(TypeError, OSError):
        text += inspect.getsource(found)
    return any(word in text.lower() for word in ("deprecat", "futurewarning"))


@pytest.mark.parametrize("entry", SYMBOLS.values(), ids=lambda entry: entry.old)
def test_replacement_exists(entry: Symbol) -> None:
    assert resolve(entry.new) is not MISSING


@pytest.mark.parametrize("entry", [e for e in SYMBOLS.values() if e.removed], ids=lambda entry: entry.old)
def test_removed_names_are_gone(entry: Symbol) -> None:
    old = resolve(entry.old)
    if old is not MISSING:
        square = torch.eye(2)
        arguments = (square, square) if entry.old in ("torch.lstsq", "torch.solve") else (square,)
        with pytest.raises(RuntimeError, match="removed"):
            old(*arguments)


@pytest.mark.parametrize("entry", [e for e in SYMBOLS.values() if not e.removed], ids=lambda entry: entry.old)
def test_deprecated_names_say_so(entry: Symbol) -> None:
    assert says_deprecated(entry.old)


def test_dropped_arguments_belong_to_something() -> None:
    for name, (_, argument, _) in DROPPED.items():
        assert argument in inspect.signature(resolve(name)).parameters, name


def test_schedulers_take_no_verbose() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(TypeError, match="verbose"):
        torch.optim.lr_scheduler.StepLR(optimizer, 1, verbose=True)
