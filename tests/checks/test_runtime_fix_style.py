"""With `fix-style = "runtime"`, a fix calls devlint.runtime, and the fixed code runs."""

import torch

from devlint import suppress
from devlint.engine import check_source
from devlint.fixes import fix_source
from devlint.settings import Settings
from devlint.source import Source

CODE = """\
import torch


def train(model, loader, criterion, device):
    model.to(device)
    losses = []
    for x, y in loader:
        x = x.to(device)
        losses.append(criterion(model(x), y))
    return losses
"""


def fixed(code: str) -> str:
    settings = Settings(frozenset({"TDL101"}), fix_style="runtime")

    def check(source: Source) -> list:  # type: ignore[type-arg]
        return suppress.apply(source, check_source(source, settings))

    return fix_source(Source.from_text(code, "case.py"), check, unsafe=True).text


def test_the_fix_calls_to_device_and_imports_it() -> None:
    text = fixed(CODE)
    assert "from devlint.runtime import to_device\n" in text
    assert "criterion(model(x), to_device(y, device))" in text
    assert fixed(text) == text


def test_the_fixed_code_runs() -> None:
    space: dict[str, object] = {}
    exec(compile(fixed(CODE), "case.py", "exec"), space)
    loader = [(torch.ones(2, 3), torch.zeros(2, 1))]
    train = space["train"]
    assert callable(train)
    losses = train(torch.nn.Linear(3, 1), loader, torch.nn.MSELoss(), "cpu")
    assert len(losses) == 1


def test_an_import_that_is_there_is_used() -> None:
    text = fixed(CODE.replace("import torch\n", "import torch\nfrom devlint.runtime import to_device as move\n", 1))
    assert "move(y, device)" in text
    assert text.count("import") == 2
