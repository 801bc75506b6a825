"""Findings that are known: baselines, `--add-noqa`, and `--diff-base`."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Cli, Project

CODE = "import torch\n\ntorch.probe_safe(1)\ntorch.probe_unsafe(1)\n"

pytestmark = pytest.mark.usefixtures("probe")


def places(cli: Cli, *options: str) -> list[str]:
    found = cli("check", "--output-format=json", *options)
    rows = json.loads(found.out)
    return [f"{Path(row['filename']).name}:{row['location']['row']}:{row['code']}" for row in rows]


def test_baseline_leaves_new_findings(cli: Cli, project: Project) -> None:
    root = project({"a.py": CODE, "sub/b.py": CODE})
    assert cli("check", "--write-baseline", "known.json").code == 0
    assert places(cli, "--baseline", "known.json") == []
    assert cli("check", "--baseline=known.json") == (0, "All checks passed.\n", "")
    text = "import torch\n\n# moved down\ntorch.probe_unsafe(1)\ntorch.probe_safe(1)\ntorch.probe_safe(1)\n"
    (root / "a.py").write_text(text)
    assert places(cli, "--baseline", "known.json") == ["a.py:6:TDL191"]
    (root / "a.py").rename(root / "c.py")
    assert len(places(cli, "--baseline", "known.json")) == 3


def test_baseline_in_the_configuration_is_relative_to_it(
    cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(
        {"pyproject.toml": '[tool.devlint]\nbaseline = "known.json"\n', "sub/b.py": CODE, "known.json": "{}"}
    )
    cli("check", "--write-baseline", "known.json")
    assert cli("check").code == 0
    monkeypatch.chdir(root / "sub")
    assert cli("check", "b.py").code == 0


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"devlint-baseline": 1}', '{"devlint-baseline": 99, "findings": []}']
)
def test_a_damaged_baseline(cli: Cli, project: Project, content: str) -> None:
    project({"a.py": CODE, "known.json": content})
    found = cli("check", "--baseline", "known.json")
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert found.err.startswith("devlint: known.json: ") and "--write-baseline" in found.err
    assert "cannot read the baseline" in cli("check", "--baseline", "nix.json").err
    assert "cannot write the baseline" in cli("check", "--write-baseline", "nix/known.json").err


def test_syntax_errors_are_never_in_a_baseline(cli: Cli, project: Project) -> None:
    project({"a.py": "import torch\nx = (\n"})
    assert cli("check", "--write-baseline", "known.json").code == 0
    assert places(cli, "--baseline", "known.json") == ["a.py:2:TDL902"]


def test_add_noqa(cli: Cli, project: Project) -> None:
    lines = [
        "import torch",
        "torch.probe_safe(1)",
        "torch.probe_safe(1); torch.probe_unsafe(2)  # why",
        "torch.probe_safe(1)  # noqa: E501",
        "torch.probe_safe(1)  # noqa: E501, W1 because",
        "torch.probe_safe('''",
        "''')",
        "torch.probe_safe('# noqa: E501')",
        "torch.probe_safe(",
        "  1,",
        ")",
        "torch.probe_safe(1)  # noqa",
        "y = 1 + \\",
        "  torch.probe_safe(1)",
    ]
    root = project({"a.py": "\r\n".join(lines)})
    assert cli("check", "--add-noqa") == (0, "", "devlint: silenced 9 finding(s)\n")
    assert (root / "a.py").read_bytes().decode().split("\r\n") == [
        "import torch",
        "torch.probe_safe(1)  # noqa: TDL191",
        "torch.probe_safe(1); torch.probe_unsafe(2)  # why  # noqa: TDL191,TDL192",
        "torch.probe_safe(1)  # noqa: E501,TDL191",
        "torch.probe_safe(1)  # noqa: E501, W1,TDL191 because",
        "torch.probe_safe('''",
        "''')  # noqa: TDL191",
        "torch.probe_safe('# noqa: E501')  # devlint: ignore[probe-safe]",
        "torch.probe_safe(  # noqa: TDL191",
        "  1,",
        ")",
        "torch.probe_safe(1)  # noqa",
        "y = 1 + \\",
        "  torch.probe_safe(1)  # noqa: TDL191",
    ]
    assert cli("check") == (0, "All checks passed.\n", "")


def test_add_noqa_with_a_reason(cli: Cli, project: Project) -> None:
    root = project({"a.py": CODE})
    assert cli("check", "--add-noqa=E2 is not a code, see issue 5").code == 0
    assert "torch.probe_safe(1)  # noqa: TDL191 - E2 is not a code, see issue 5\n" in (root / "a.py").read_text()
    assert cli("check").code == 0


def test_add_noqa_leaves_what_cannot_be_silenced(cli: Cli, project: Project) -> None:
    root = project({"a.py": "import torch\nx = (\n", "b.py": CODE})
    assert cli("check", "--add-noqa").code == 0
    assert (root / "a.py").read_text() == "import torch\nx = (\n"
    assert places(cli) == ["a.py:2:TDL902"]


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_diff_base(cli: Cli, project: Project) -> None:
    root = project({"a.py": CODE, "sub dir/ä.py": CODE, "c.py": CODE, 'q"\t.py': CODE})
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "one")
    assert places(cli, "--diff-base", "HEAD") == []
    (root / "a.py").write_text(CODE.replace("probe_unsafe(1)", "probe_unsafe(\n    2\n)") + "torch.probe_safe(3)\n")
    (root / "sub dir/ä.py").write_text("import torch\n\n\ntorch.probe_safe(1)\ntorch.probe_unsafe(10)\n")
    (root / "new.py").write_text(CODE)
    (root / 'q"\t.py').write_text("x = 1\n" + CODE + "\ntorch.probe_safe(2)\n")
    expected = [
        "a.py:4:TDL192",
        "a.py:7:TDL191",
        "new.py:3:TDL191",
        "new.py:4:TDL192",
        'q"\t.py:7:TDL191',
        "ä.py:5:TDL192",
    ]
    assert places(cli, "--diff-base", "HEAD") == expected
    git("add", ".")
    git("commit", "-m", "two")
    assert places(cli, "--diff-base", "HEAD~1") == expected
    assert places(cli, "--diff-base", "HEAD") == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--fix", "--add-noqa"], "--fix and --add-noqa exclude each other"),
        (["--diff", "--write-baseline=x"], "--diff and --write-baseline exclude each other"),
        (["--fix", "--diff-base=HEAD"], "--fix and --diff-base exclude each other"),
        (["--diff-base=HEAD"], "--diff-base: git rev-parse failed in "),
        (["-", "--add-noqa"], "--add-noqa needs files; it does not work on standard input"),
    ],
)
def test_what_does_not_go_together(cli: Cli, project: Project, argv: list[str], message: str) -> None:
    project({"a.py": CODE})
    found = cli("check", *argv)
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert message in found.err


def test_a_revision_that_does_not_exist(cli: Cli, project: Project) -> None:
    project({"a.py": CODE})
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    found = cli("check", "--diff-base", "nix")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "--diff-base: git merge-base failed" in found.err
