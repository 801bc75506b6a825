"""Every rule page is documentation, specification and test at once."""

import pytest

from devlint.checks import rules
from devlint.pages import FAMILIES, Page, pages, pages_folder
from devlint.scaffold import index
from devlint.testing import accepted, problems

SECTIONS = [
    "## What it does",
    "## Why is this bad?",
    "## Example",
    "## Fix safety",
    "## References",
    "## Field precision",
]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.code)
def test_page_tells_the_truth(page: Page, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--accept"):
        page.path.write_text(accepted(page), encoding="utf-8")
        return
    fences = page.fences()
    found = [
        f"{page.path.name}:{fence.line}: {problem}"
        for fence, following in zip(fences, [*fences[1:], None], strict=True)
        for problem in problems(page, fence, following)
    ]
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.code)
def test_page_has_its_parts(page: Page) -> None:
    rule = rules()[page.code]
    kinds = [fence.kind for fence in page.fences()]
    assert page.text.startswith(f"# {rule.code} {rule.name}\n")
    assert page.path.parent.name == FAMILIES[page.code[3]]
    assert [section for section in SECTIONS if section not in page.text] == []
    assert "bad" in kinds and "good" in kinds
    assert ("fixed" in kinds) == (rule.fix != "none")


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {page.code: page.name for page in pages()} == {rule.code: rule.name for rule in rules().values()}


def test_index_is_current() -> None:
    assert (pages_folder() / "README.md").read_text(encoding="utf-8") == index(), (
        "run `python -m devlint.scaffold --index`"
    )
