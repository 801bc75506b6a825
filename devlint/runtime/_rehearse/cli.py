"""``devlint rehearse``: run a script or module on a rehearsed device.

Exit codes: 0 clean, 1 a device error was found, 2 the program could not be run or failed for a reason of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

CLEAN, FOUND, FAILED = 0, 1, 2


class _EnoughSteps(BaseException):
    """Ends the program after ``--steps``; no ``except Exception`` of the program's stops it."""


class _Ended(Exception):
    """Carries the program's error out of the rehearsal, which records it."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``devlint rehearse``."""
    made = argparse.ArgumentParser(
        prog="devlint rehearse",
        description="Run a PyTorch program on a CPU under CUDA's device rules. The program is executed.",
        epilog="exit codes: 0 clean, 1 a device error was found, 2 the program could not be run",
    )
    made.add_argument("--device", default="cuda", choices=("cuda", "xpu", "mps"), help="device to rehearse")
    made.add_argument("--count", type=_positive, default=1, metavar="N", help="number of devices (default 1)")
    made.add_argument("--steps", type=_positive, metavar="N", help="stop after N optimizer steps")
    made.add_argument("--format", default="text", choices=("text", "json"), help="form of the report")
    made.add_argument(
        "--poison",
        action="store_true",
        help="fill non-blocking device-to-host copies with NaN until a synchronize",
    )
    made.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="module to run, and its arguments")
    made.add_argument("script", nargs=argparse.REMAINDER, help="script to run, and its arguments")
    return made


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``devlint rehearse`` with ``argv``; return its exit code."""
    try:
        options = parser().parse_args(argv)
    except SystemExit as stop:
        return FAILED if stop.code else CLEAN
    target = options.module if options.module is not None else options.script
    if not target:
        return _refuse("name a script, or a module after -m")
    if options.module is None and not os.path.isfile(target[0]):
        return _refuse(f"no such script: {target[0]}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return _refuse(f"rehearsing needs torch: {error} (pip install devlint[runtime])")
    return _run(options, target)


def _refuse(text: str) -> int:
    print(f"devlint rehearse: {text}", file=sys.stderr)
    return FAILED


def _run(options: argparse.Namespace, target: list[str]) -> int:
    from devlint.runtime._rehearse.private_api import RehearsalUnavailable
    from devlint.runtime._rehearse.session import rehearse

    failure: BaseException | None = None
    try:
        with rehearse(options.device, options.count, poison=options.poison) as report:
            with _output(options.format), _arguments(options.module is not None, target), _at_most(options.steps):
                failure = _execute(options.module is not None, target)
            if isinstance(failure, Exception):
                raise _Ended from failure
    except RehearsalUnavailable as error:
        return _refuse(str(error))
    except _Ended:
        pass  # the error is in ``failure``, and in the report where a device would raise it
    if failure is not None:
        _explain(failure, report)
    print(report.to_json() if options.format == "json" else report.text(), flush=True)
    if report.mismatches:
        return FOUND
    return FAILED if failure is not None else CLEAN


@contextlib.contextmanager
def _output(form: str) -> Iterator[None]:
    """With JSON on stdout, what the program prints goes to stderr."""
    if form == "json":
        with contextlib.redirect_stdout(sys.stderr):
            yield
    else:
        yield


@contextlib.contextmanager
def _arguments(module: bool, target: list[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as ``python`` sets them."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = list(target)
    sys.path.insert(0, os.getcwd() if module else os.path.dirname(os.path.abspath(target[0])))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextlib.contextmanager
def _at_most(steps: int | None) -> Iterator[None]:
    if steps is None:
        yield
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    left = [steps]

    def count(optimizer: Any, args: Any, kwargs: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise _EnoughSteps

    handle = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _execute(module: bool, target: list[str]) -> BaseException | None:
    """Run the program; return the exception that ended it, None for a good end."""
    try:
        if module:
            runpy.run_module(target[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target[0], run_name="__main__")
    except _EnoughSteps:
        return None
    except SystemExit as stop:
        return None if stop.code in (None, 0) else stop
    except KeyboardInterrupt as stop:
        return stop
    except Exception as error:
        return error
    return None


def _explain(failure: BaseException, report: Any) -> None:
    """Say on stderr how the program ended, with its own frames only."""
    from devlint.runtime._rehearse import frames

    if isinstance(failure, SystemExit):
        print(f"devlint rehearse: the program exited with {failure.code}", file=sys.stderr)
        return
    if isinstance(failure, KeyboardInterrupt):
        print("devlint rehearse: interrupted", file=sys.stderr)
        return
    own: list[traceback.FrameSummary] = []
    trace: TracebackType | None = failure.__traceback__
    while trace is not None:
        if not frames.is_foreign(trace.tb_frame.f_code):
            code = trace.tb_frame.f_code
            own.append(traceback.FrameSummary(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    print("devlint rehearse: the program ended with an error:", file=sys.stderr)
    print("".join(traceback.format_list(own)), end="", file=sys.stderr)
    print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
