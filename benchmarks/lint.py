"""What linting costs, as ratios in one run: against `ast.parse` over the same files, and against a peer.

    python benchmarks/lint.py PATH [--peer 'COMMAND']      PATH is a folder of Python files

Each figure is the CPU time of whole processes, the median of five runs that alternate. The peer's command is given the
folder as its last argument; `--peer 'torchfix --select=ALL'` compares with TorchFix, where that is installed. A second
table tells what part of one process's time each part of devlint takes, those that it calls apart.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from devlint import engine
from devlint.checks import rules
from devlint.positions import Positions
from devlint.semantics.flow.world import World
from devlint.semantics.origins import Origins
from devlint.settings import Settings
from devlint.units import Unit

RUNS = 5
PARSE = """
import ast, pathlib, sys, warnings
warnings.simplefilter("ignore")
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        pass
"""


def cpu(command: list[str]) -> float:
    """The user and system time, in seconds, of one run of `command` and its children."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """`owner.name` is `value` for a while."""
    before = vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def shares(files: list[Path]) -> dict[str, float]:
    """The part of the CPU time of checking `files` that each part of devlint takes, from 0 to 1."""
    spent: dict[str, float] = {}
    running: list[str] = ["visitors and their own searches"]
    since = 0.0

    def switch(to: str | None) -> None:
        nonlocal since
        now = time.process_time()
        spent[running[-1]] = spent.get(running[-1], 0.0) + now - since
        since = now
        if to is None:
            running.pop()
        else:
            running.append(to)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            switch(part)
            try:
                return function(*args, **kwargs)
            finally:
                switch(None)

        return wrapper

    module = functools.cached_property(timed("LibCST's parser and the index of its nodes", vars(Unit)["module"].func))
    module.__set_name__(Unit, "module")
    parts = [
        (engine, "parse", timed("ast.parse", engine.parse)),
        (Unit, "module", module),
        (Positions, "of", timed("places of nodes", Positions.of)),
        (World, "interpret", timed("the interpreter", World.interpret)),
        (Origins, "of", timed("origins of values", Origins.of)),
    ]
    settings = Settings(frozenset(rule.code for rule in rules().values() if rule.default))
    contents = [(str(path), path.read_bytes()) for path in files]
    for path, data in contents:
        engine.check_bytes(path, data, settings)
    gc.disable()
    with ExitStack() as stack:
        for owner, name, value in parts:
            stack.enter_context(replaced(owner, name, value))
        since = time.process_time()
        for path, data in contents:
            engine.check_bytes(path, data, settings)
        switch(None)
    gc.enable()
    return {part: seconds / sum(spent.values()) for part, seconds in spent.items()}


def main() -> int:
    """Print the table. Exit code 2 where the folder holds no Python file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--peer", default="")
    arguments = parser.parse_args()
    files = sorted(arguments.path.rglob("*.py"))
    if not files:
        print(f"{arguments.path}: no Python file in it", file=sys.stderr)
        return 2
    folder = str(arguments.path)
    check = [sys.executable, "-m", "devlint", "check", "--no-cache", "--jobs", "1"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "ast.parse of every file": [sys.executable, "-c", PARSE, folder],
        "devlint check": [*check, folder],
        "devlint check --select ALL": [*check, "--select", "ALL", folder],
    }
    if arguments.peer:
        commands[arguments.peer] = [*shlex.split(arguments.peer), folder]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            times[name].append(cpu(command))
    start = statistics.median(times["python -c pass"])
    parse = statistics.median(times["ast.parse of every file"]) - start
    print(f"{len(files)} files, {RUNS} runs each, median CPU time\n")
    print("| command | seconds | × ast.parse |\n|---|---|---|")
    for name in commands:
        median = statistics.median(times[name])
        print(f"| {name} | {median:.2f} | {(median - start) / parse:.1f} |")
    print("\n| part of `devlint check` | share |\n|---|---|")
    for part, share in sorted(shares(files).items(), key=lambda item: -item[1]):
        print(f"| {part} | {share:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
