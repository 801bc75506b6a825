"""Programs with one mistake or none: each must fail on its marked line, wait on its marked lines, or just run.

A function of ``programs/`` marks its lines: ``# raises Kind: text`` is a device error, ``# fails Kind: text`` another
error, ``# syncs`` a wait of the host. Where the line lies in another function, ``expects`` gives kind, text and a
part of the line.
"""

import importlib.util
import inspect
import re
import traceback
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

torch = pytest.importorskip("torch")

from devlint.runtime._rehearse import rehearse  # noqa: E402

FOLDER = Path(__file__).parent / "programs"
MARK = re.compile(r"#\s(raises|fails)\s(\w+)(?::\s(.*?))?\s*(?:#.*)?$")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rehearsed_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs() -> list:
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        for name, value in vars(load(path)).items():
            own = isinstance(value, FunctionType) and value.__module__ == f"rehearsed_{path.stem}"
            if own and not inspect.signature(value).parameters and name not in ("net",):
                found.append(pytest.param(value, id=f"{path.stem}-{name}"))
    return found


def expected(program: FunctionType) -> tuple[str, str, str, int, set[int]]:
    """(raises, fails or nothing; kind; text; line; lines with syncs) of ``program``."""
    lines, first = inspect.getsourcelines(program)
    syncs = {first + index for index, line in enumerate(lines) if "# syncs" in line}
    if hasattr(program, "expects"):
        kind, text, part = program.expects
        source = Path(program.__code__.co_filename).read_text(encoding="utf-8").splitlines()
        (line,) = [index for index, line in enumerate(source, 1) if part in f"{line}\n" and "expects" not in line]
        return "raises", kind, text, line, syncs
    for index, line in enumerate(lines):
        mark = MARK.search(line)
        if mark is not None:
            return mark[1], mark[2], mark[3] or "", first + index, syncs
    return "", "", "", 0, syncs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", programs())
def test_program(program: FunctionType) -> None:
    verdict, kind, text, line, syncs = expected(program)
    torch.manual_seed(0)
    error = None
    try:
        with rehearse("cuda", count=2) as report:
            program()
    except Exception as raised:
        error = raised
    found = {sync.line for sync in report.syncs}
    assert found - {line} == syncs - {line}, report.text()
    if not verdict:
        assert error is None and report.clean is not hasattr(program, "caught"), error
        return
    assert error is not None, "no error"
    assert kind in [base.__name__ for base in type(error).__mro__], repr(error)
    assert text in str(error), error
    own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if "programs" in frame.filename]
    if verdict == "raises":
        assert report.mismatches, error
        assert report.mismatches[0].line == line, report.text()
    else:
        assert own[-1] == line
    assert verdict == "raises" or report.clean
