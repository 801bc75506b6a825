"""How CUDA checks the devices of each aten operator's arguments, from the installed torch's own operator list.

``native_functions.yaml`` ships in the wheel. It says for each operator whether the CUDA wrapper checks that all
tensors share a device, or leaves that to TensorIterator (which lets 0-dim CPU tensors through), or whether the
operator is made of other operators.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from devlint.runtime._rehearse import private_api

EXACT = "exact"  # the CUDA wrapper wants all tensors on one device
ITERATOR = "iterator"  # TensorIterator: a 0-dim CPU tensor is a scalar
IMPLICIT = "implicit"  # composed of other operators, with autograd through them
EXPLICIT = "explicit"  # composed below autograd
NO_KERNEL = "none"  # CPU only


@dataclass(frozen=True)
class OpRule:
    """One operator: ``kind`` is one of the constants above; ``structured`` shapes CUDA's wrapper name."""

    kind: str
    structured: bool


def parse(text: str) -> dict[str, OpRule]:
    """The table of a ``native_functions.yaml``: operator name with overload -> rule."""
    entries: dict[str, dict[str, str]] = {}
    entry: dict[str, str] = {}
    in_dispatch = False
    for line in text.splitlines():
        if line.startswith("- func:"):
            name = line[len("- func:") :].strip().split("(")[0]
            entry = entries.setdefault(name, {})
            in_dispatch = False
        elif line.startswith("  dispatch:"):
            in_dispatch = True
            entry["dispatch"] = ""
        elif in_dispatch and line.startswith("    "):
            entry["dispatch"] += "," + line.split(":")[0].strip()
        elif line.startswith("  ") and not line.startswith("   ") and ":" in line:
            in_dispatch = False
            key, value = line.split(":", 1)
            entry[key.strip()] = value.split("#")[0].strip()
    rules = {name: _rule(entry, entries) for name, entry in entries.items()}
    for entry in entries.values():
        for made in entry.get("autogen", "").split(","):
            rules.setdefault(made.strip(), OpRule(EXPLICIT, False))
    rules.pop("", None)
    for name, rule in rules.items():  # allocates, then calls its out= form
        if rule.kind == EXPLICIT and rules.get(f"{name}.out", rule).kind == EXACT:
            rules[name] = OpRule(EXACT, rule.structured)
    return rules


def _keys(entry: dict[str, str]) -> set[str]:
    keys = {key.strip() for key in entry.get("dispatch", "").split(",") if key.strip()}
    return keys | {"CPU", "CUDA"} if "ufunc_inner_loop" in entry else keys


def _rule(entry: dict[str, str], entries: dict[str, dict[str, str]]) -> OpRule:
    keys = _keys(entry)
    delegate = entry.get("structured_delegate")
    structured = delegate is not None or entry.get("structured") == "True"
    if "CUDA" in keys or (delegate is not None and "CUDA" in _keys(entries.get(delegate, {}))):
        kind = ITERATOR if entry.get("device_check") == "NoCheck" else EXACT
    elif "CompositeImplicitAutograd" in keys or ("dispatch" not in entry and delegate is None):
        kind = IMPLICIT
    elif any(key.startswith("CompositeExplicitAutograd") for key in keys):
        kind = EXPLICIT
    else:
        kind = NO_KERNEL
    return OpRule(kind, structured)


@functools.lru_cache(maxsize=1)
def table() -> dict[str, OpRule]:
    """The installed torch's table, read once a process (25 ms: less than a cache on disk would save).

    Empty where the wheel ships no operator list: then every operator counts as exact.
    """
    path = private_api.native_functions()
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        return parse(file.read())
