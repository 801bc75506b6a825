"""The pages of the training half: their examples run, and each signature is the real one."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from devlint import runtime

DOCS = Path(__file__).resolve().parents[2] / "docs" / "runtime"
PAGES = {
    "Mean": ["Mean"],
    "TrainStep": ["TrainStep"],
    "distributed": ["distributed"],
    "fit": ["fit"],
    "load_checkpoint": ["load_checkpoint"],
    "precision": ["precision", "Precision"],
    "save_checkpoint": ["save_checkpoint"],
    "seed_everything": ["seed_everything"],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_example_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert examples
    for example in examples:
        scope: dict[str, Any] = {}
        exec(compile(example, f"{page}.md", "exec"), scope)


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in PAGES.items() for name in names])
def test_the_signature_is_the_real_one(page: str, name: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    if page == "Mean":
        pairs = [("update", runtime.Mean.update), ("compute", runtime.Mean.compute)]
    else:
        pairs = [(name, getattr(runtime, name))]
    for shown, function in pairs:
        [written] = re.findall(rf"^    .*?\b{shown}\((.*?)\)(?: ->.*)?(?:;.*)?$", text.split("```")[0], re.M | re.S)
        words = [part.split("=")[0].strip() for part in written.replace("\n", " ").split(",")]
        expected: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in expected:
                expected.append("*")
            expected.append(f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name)
        assert words == [word for word in expected if word != "self"]
