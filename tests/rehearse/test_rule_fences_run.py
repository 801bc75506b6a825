"""The rule pages' cases, executed on two rehearsed GPUs: a bad one shows its fault there, a fixed one does not.

A page asks for it in the fence's first line: ``` ```python bad run show(torch.ones(3), device)```. After the case's
module, each statement after ``run`` is executed by itself. A bad case must raise at a line marked ``# error``, or with
a tensor that such a line made, or in the statement that uses its result; or the host must wait at such a line, and
wait less in the ``fixed`` case that follows.
"""

import ast
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from devlint.pages import Fence, Page, pages  # noqa: E402
from devlint.runtime._rehearse import rehearse  # noqa: E402

CASE, CALL = "case.py", "call.py"


@dataclass
class Outcome:
    """What one statement did: the error with its lines (0 in the statement itself), and the lines that wait."""

    error: Exception | None
    lines: set[int]
    waits: dict[int, int]


def pairs(batches: int = 2) -> list:
    """Batches of 4 rows of width 8 and their labels of 4 classes, on the host."""
    return [(torch.ones(4, 8), torch.tensor([0, 1, 2, 3])) for _ in range(batches)]


def rows() -> "torch.utils.data.TensorDataset":
    """8 rows of width 8 with their labels, on the host."""
    return torch.utils.data.TensorDataset(torch.ones(8, 8), torch.zeros(8, dtype=torch.long))


def one_step(net: "nn.Module", optimizer: "torch.optim.Optimizer") -> None:
    """A training step of ``net``, whose first layer has width 8, on its own device."""
    net(torch.ones(4, 8, device=next(net.parameters()).device)).sum().backward()
    optimizer.step()


def amp(train: object, *more: object) -> None:
    """``train(model, loader, optimizer, scaler, ...)`` on the device."""
    model = nn.Linear(8, 1).to("cuda")
    loader = [(torch.ones(4, 8, device="cuda"), torch.ones(4, 1, device="cuda")) for _ in range(2)]
    train(model, loader, torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cuda"), *more)


def outcome(fence: Fence, statement: str, folder: Path) -> Outcome:
    """Run ``statement`` after the case's module."""

    def saved(value: object) -> str:
        path = folder / "saved.pt"
        torch.save(value, path)
        return str(path)

    scope = {"__name__": "case", "nn": nn, "torch": torch, "device": "cuda", "pairs": pairs, "rows": rows}
    scope |= {"one_step": one_step, "amp": amp, "saved": saved}
    error, lines = None, set()
    torch.manual_seed(0)
    with rehearse("cuda", 2, poison=True) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(fence.code, CASE, "exec"), scope)
            exec(compile(statement, CALL, "exec"), scope)
        except Exception as raised:
            error = raised
    if error is not None:
        trace, inner = error.__traceback__, 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == CASE:
                inner = trace.tb_lineno
            trace = trace.tb_next
        lines.add(inner)
        for tensor in report.mismatches[0].tensors if report.mismatches else ():
            if f" at {CASE}:" in tensor.origin:
                lines.add(int(tensor.origin.rpartition(":")[2]))
    waits: dict[int, int] = {}
    for found in [*report.syncs, *(move for move in report.transfers if not move.non_blocking)]:
        if found.file == CASE:
            waits[found.line] = waits.get(found.line, 0) + found.count
    return Outcome(error, lines, waits)


def cases() -> list:
    found = []
    for page in pages():
        fences = page.fences()
        for index, fence in enumerate(fences):
            if fence.call:
                following = fences[index + 1] if index + 1 < len(fences) else None
                fixed = following if following is not None and following.kind == "fixed" else None
                for number, statement in enumerate(fence.call.split("; ")):
                    name = f"{page.code}-{index}-{number}"
                    found.append(pytest.param(page, fence, fixed, statement, id=name))
    return found


@pytest.mark.parametrize(("page", "fence", "fixed", "statement"), cases())
def test_case_shows_its_effect(page: Page, fence: Fence, fixed: Fence | None, statement: str, tmp_path: Path) -> None:
    ast.parse(statement)
    got = outcome(fence, statement, tmp_path)
    if fence.kind == "good":
        assert got.error is None, got
        return
    assert fence.kind == "bad", "a fixed case runs with the bad one before it"
    marked = {line for line, _ in fence.expected}
    assert got.lines & (marked | {0}) or (got.error is None and marked & set(got.waits)), got
    if fixed is None:
        return
    after = outcome(fixed, statement, tmp_path)
    assert after.error is None or after.lines & {line for line, _ in fixed.expected}, after
    assert got.error is not None or sum(after.waits.values()) < sum(got.waits.values()), after


def test_families_are_covered() -> None:
    asked = {page.code for page in pages() if any(fence.call for fence in page.fences())}
    assert {"TDL101", "TDL103", "TDL104", "TDL105", "TDL106", "TDL107", "TDL108", "TDL112", "TDL130"} <= asked
    assert {"TDL201", "TDL205", "TDL301", "TDL302", "TDL601", "TDL602", "TDL603"} <= asked
