"""The runtime's pages: there is one for every function of these modules, and their examples run."""

import re
from pathlib import Path

import pytest

import devlint.runtime
from devlint.runtime import rehearse

DOCS = Path(__file__).resolve().parents[2] / "docs" / "runtime"
MODULES = ("device", "move", "loader", "preload", "guard", "explain")
NAMES = [name for module in MODULES for name in devlint.runtime._MODULES[module]]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert examples
    for example in examples:
        assert "assert " in example
        with rehearse():
            exec(compile(example, f"{name}.md", "exec"), {"__name__": "example"})


def test_the_index_links_every_page_and_no_other() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w.]+\.md)\)", text))
    assert {f"{name}.md" for name in NAMES} <= linked
    assert [page for page in sorted(linked) if not (DOCS / page).is_file()] == []


def test_the_index_names_the_errors() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [name for name in devlint.runtime._MODULES["errors"] if name not in text] == []


def test_the_bench_page_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    from devlint.runtime import bench

    with pytest.raises(SystemExit):
        bench.main(["--help"])
    page = (DOCS / "bench.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert [option for option in sorted(options) if option not in page] == []
