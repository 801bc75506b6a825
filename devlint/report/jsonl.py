"""The `json` format, one finding a line."""

from __future__ import annotations

import json
from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.json import rows
from devlint.report.look import Look


def render(results: Sequence[FileResult], look: Look) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(results))
