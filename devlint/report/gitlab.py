"""GitLab's code quality report: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

from devlint.findings import FileResult
from devlint.report.look import Look, relative


def render(results: Sequence[FileResult], look: Look) -> str:
    """One list; a finding's fingerprint stays the same when lines above it come and go."""
    seen: Counter[tuple[str, str, str]] = Counter()
    rows = []
    for result in results:
        for finding in result.findings:
            path = relative(finding.path)
            key = (path, finding.code, finding.message)
            text = "\0".join([*key, str(seen[key])])
            seen[key] += 1
            span = finding.span
            rows.append(
                {
                    "check_name": finding.code,
                    "description": f"{finding.code} {finding.name}: {finding.message}",
                    "severity": "major",
                    "fingerprint": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                    "location": {
                        "path": path,
                        "positions": {
                            "begin": {"line": span.line, "column": span.column + 1},
                            "end": {"line": span.end_line, "column": span.end_column + 1},
                        },
                    },
                }
            )
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
