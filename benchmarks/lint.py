"""What linting costs, as ratios in one run: against `ast.parse` over the same files, and against a peer.

    python benchmarks/lint.py PATH [--peer 'COMMAND']      PATH is a folder of Python files

Each figure is the CPU time of whole processes, the median of five runs that alternate. The peer's command is given the
folder as its last argument; `--peer 'torchfix --select=ALL'` compares with TorchFix, where that is installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

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


def main() -> int:
    """Print the table. Exit code 2 where the folder holds no Python file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--peer", default="")
    arguments = parser.parse_args()
    count = sum(1 for _ in arguments.path.rglob("*.py"))
    if not count:
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
    print(f"{count} files, {RUNS} runs each, median CPU time\n")
    print("| command | seconds | × ast.parse |\n|---|---|---|")
    for name in commands:
        median = statistics.median(times[name])
        print(f"| {name} | {median:.2f} | {(median - start) / parse:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
