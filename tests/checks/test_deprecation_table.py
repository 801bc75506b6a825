"""The deprecation tables against the torch that is installed."""

import contextlib
import importlib
import inspect
import warnings
from typing import Any

import pytest
import torch

from devlint.checks.deprecated.argument_table import ARGUMENTS, LOSSES, MISSING, SCHEDULERS, VERBOSE
from devlint.checks.deprecated.rewrites import _REWRITERS
from devlint.checks.deprecated.table import SYMBOLS, Symbol

MISSING_NAME = object()
SYMBOLS_THAT_STAY = [entry for entry in SYMBOLS.values() if not entry.removed]
SYMBOLS_THAT_WENT = [entry for entry in SYMBOLS.values() if entry.removed]
# Deprecated as a value, a module or a re-export: their own text does not say so, what they belong to does.
SAID_ELSEWHERE = {
    "torch.distributed.fsdp.ShardingStrategy.NO_SHARD": "torch.distributed.fsdp._init_utils._init_core_state",
    "torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type": (
        "torch.distributed.fsdp.FullyShardedDataParallel.set_state_dict_type"
    ),
}


def resolve(name: str) -> Any:
    """What a dotted name stands for, submodules imported on the way; MISSING_NAME where there is no such thing."""
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(found, part)
        except AttributeError:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = importlib.import_module(".".join(parts[: index + 1]))
            except ImportError:
                return MISSING_NAME
    return found


def says_deprecated(name: str) -> bool:
    """Whether reading or calling the name warns, or its documentation or source calls it deprecated."""
    name = SAID_ELSEWHERE.get(name, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = getattr(resolve(name.rpartition(".")[0]), name.rpartition(".")[2])
        text = getattr(found, "__doc__", None) or ""
        if "_autocast_" in name:
            # These are built in: only a call tells. Setters are given what is set already.
            device = name.split("_autocast_")[1].split("_")[0].replace("gpu", "cuda")
            value = torch.get_autocast_dtype(device) if name.endswith("dtype") else torch.is_autocast_enabled(device)
            found(value) if ".set_" in name else found()
        elif name.startswith("torch.quantize_"):
            given = {"per_channel": (torch.ones(1), torch.zeros(1, dtype=torch.int64), 0, torch.qint8)}
            x, kind = torch.ones(1), name.partition("quantize_")[2]
            # The three warn once for all, unless told otherwise.
            torch.set_warn_always(True)
            found(x, *given.get(kind, (1.0, 0, torch.qint8) if kind == "per_tensor" else (torch.qint8, False)))
            torch.set_warn_always(False)
    if any("deprecat" in str(warning.message).lower() for warning in caught):
        return True
    with contextlib.suppress(TypeError, OSError):
        text += inspect.getsource(found)
    return any(word in text.lower() for word in ("deprecat", "futurewarning"))


@pytest.mark.parametrize("entry", [e for e in SYMBOLS.values() if e.new], ids=lambda entry: entry.old)
def test_replacement_exists(entry: Symbol) -> None:
    assert resolve(entry.new) is not MISSING_NAME


@pytest.mark.parametrize("entry", SYMBOLS_THAT_WENT, ids=lambda entry: entry.old)
def test_removed_names_are_gone(entry: Symbol) -> None:
    old = resolve(entry.old)
    if old is not MISSING_NAME:
        square = torch.eye(2)
        arguments = (square, square) if entry.old in ("torch.lstsq", "torch.solve") else (square,)
        with pytest.raises(RuntimeError, match="removed"):
            old(*arguments)


@pytest.mark.parametrize("entry", SYMBOLS_THAT_STAY, ids=lambda entry: entry.old)
def test_deprecated_names_say_so(entry: Symbol) -> None:
    assert says_deprecated(entry.old)


@pytest.mark.parametrize("entry", [e for e in SYMBOLS.values() if not e.new], ids=lambda entry: entry.old)
def test_what_has_no_successor_says_why_and_has_no_fix(entry: Symbol) -> None:
    assert entry.note and entry.fix == "none"


def test_rewriters_belong_to_names_of_the_table() -> None:
    assert set(_REWRITERS) <= set(SYMBOLS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_belong_to_something(name: str) -> None:
    taken = inspect.signature(resolve(name)).parameters
    for entry in ARGUMENTS[name]:
        assert entry.keyword in taken
        assert (entry.fix == "rename") == bool(entry.new) and (not entry.new or entry.new in taken)


@pytest.mark.parametrize("name", MISSING)
def test_what_may_be_missing_can_be_given(name: str) -> None:
    entry = MISSING[name]
    call = resolve(name)
    if name != "torch.meshgrid":
        taken = list(inspect.signature(call).parameters)
        assert entry.keyword in taken or "kwargs" in taken
        assert entry.position is None or taken[entry.position] == entry.keyword


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_losses_take_all_three(name: str) -> None:
    assert {"size_average", "reduce", "reduction"} <= set(inspect.signature(resolve(name)).parameters)


def test_schedulers_take_no_verbose() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    assert torch.optim.lr_scheduler.__name__ + "." == SCHEDULERS
    with pytest.raises(TypeError, match=VERBOSE.keyword):
        torch.optim.lr_scheduler.StepLR(optimizer, 1, verbose=True)
