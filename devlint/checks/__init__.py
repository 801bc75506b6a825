"""The rules: every module below this package that defines a Check is one, without registration."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from devlint.checks.base import Check, Rule


@cache
def checks() -> tuple[type[Check], ...]:
    """Every check, in order of its first rule's code."""
    found: list[type[Check]] = []
    for module in pkgutil.walk_packages(__path__, __name__ + "."):
        if module.ispkg:
            continue
        namespace = vars(importlib.import_module(module.name))
        found += [
            value
            for value in namespace.values()
            if isinstance(value, type)
            and issubclass(value, Check)
            and value.__module__ == module.name
            and "rules" in vars(value)
        ]
    return tuple(sorted(found, key=lambda check: check.rules[0].code))


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its code, in order."""
    every = [rule for check in checks() for rule in check.rules]
    return {rule.code: rule for rule in sorted(every, key=lambda rule: rule.code)}


@cache
def default_codes() -> frozenset[str]:
    """The codes of the rules that are on without being asked for."""
    return frozenset(code for code, rule in rules().items() if rule.default)
