"""Whole programs: what is reported, and what `--fix --unsafe-fixes` makes of them.

`pytest --accept` writes `out.py` and `report.txt` anew.
"""

from pathlib import Path

import pytest

from devlint.checks import default_codes
from devlint.settings import Settings
from devlint.testing import findings, fixed

SCENARIOS = sorted(path.parent for path in (Path(__file__).parent / "fixtures").glob("*/in.py"))


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda folder: folder.name)
def test_scenario(folder: Path, request: pytest.FixtureRequest) -> None:
    code = (folder / "in.py").read_text(encoding="utf-8")
    settings = Settings(default_codes())
    report = "".join(
        f"{finding.span.line}:{finding.span.column + 1} {finding.code} {finding.message}\n"
        for finding in findings(code, settings)
    )
    result = fixed(code, settings)
    assert result.errors == ()
    assert fixed(result.text, settings).text == result.text
    if request.config.getoption("--accept"):
        (folder / "report.txt").write_text(report, encoding="utf-8")
        (folder / "out.py").write_text(result.text, encoding="utf-8")
    assert (folder / "report.txt").read_text(encoding="utf-8") == report
    assert (folder / "out.py").read_text(encoding="utf-8") == result.text
