"""The LibCST codemod: the same fixes, byte for byte."""

import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest
from conftest import Cli, Project
from libcst.codemod import CodemodContext, SkipFile

from devlint.codemod import DevlintCommand
from devlint.pages import pages

SAFE = "import torch\n\ntorch.probe_safe(1)\n"
UNSAFE = "import torch\n\ntorch.probe_unsafe(1)\n"


def transform(path: Path, **options: object) -> tuple[bytes, list[str]]:
    context = CodemodContext(filename=str(path))
    tree = DevlintCommand(context, **options).transform_module(cst.parse_module(path.read_bytes()))  # type: ignore[arg-type]
    return tree.bytes, context.warnings


@pytest.mark.usefixtures("probe")
def test_safe_fixes_are_applied_and_the_rest_is_told(project: Project) -> None:
    root = project({"a.py": SAFE + UNSAFE})
    code, warnings = transform(root / "a.py")
    assert code.decode() == SAFE.replace("probe_safe", "probed") + UNSAFE
    assert warnings == [f"{root / 'a.py'}:6:1: TDL192 `probe_unsafe` is a probe"]
    assert transform(root / "a.py", unsafe_fixes=True) == ((SAFE.replace("probe_safe", "probed") * 2).encode(), [])
    assert transform(root / "a.py", select="TDL192") == ((SAFE + UNSAFE).encode(), warnings)


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    "text",
    [
        b"import torch\r\ntorch.probe_safe()\r\n",
        b"\xef\xbb\xbfimport torch\ntorch.probe_safe()\n",
        b"# coding: latin-1\nimport torch\nx = '\xe9'\ntorch.probe_safe()",
        b"\x0cimport torch\n\x0ctorch.probe_safe()\n\x0c\n",
        b"import torch\r\ntorch.probe_safe()\nx = 1\r",
    ],
)
def test_every_other_byte_stays(project: Project, text: bytes) -> None:
    root = project({"a.py": text, "b.py": text.replace(b"probe_safe", b"probed")})
    expected = text.replace(b"probe_safe", b"probed")
    assert transform(root / "a.py")[0] == expected
    assert transform(root / "b.py")[0] == expected


@pytest.mark.usefixtures("probe")
def test_a_tree_that_is_not_the_files_is_what_counts(project: Project) -> None:
    root = project({"a.py": SAFE})
    context = CodemodContext(filename=str(root / "a.py"))
    tree = DevlintCommand(context).transform_module(cst.parse_module("x = 1\n" + SAFE))
    assert tree.code == "x = 1\n" + SAFE.replace("probe_safe", "probed")
    assert DevlintCommand(CodemodContext()).transform_module(cst.parse_module(SAFE)).code == tree.code[6:]


def test_a_wrong_configuration_skips_the_file(project: Project) -> None:
    root = project({"a.py": SAFE, "pyproject.toml": "[tool.devlint]\nfixx = 1\n"})
    with pytest.raises(SkipFile, match="unknown key 'fixx'"):
        transform(root / "a.py")


def test_codemod_and_command_line_agree(cli: Cli, project: Project) -> None:
    """On every case of every page, and on every fixture."""
    files: dict[str, str | bytes] = {}
    for page in pages():
        files |= {f"{page.code}_{number}.py": fence.code for number, fence in enumerate(page.fences())}
    for path in sorted((Path(__file__).parent / "fixtures").glob("*/in.py")):
        files[f"{path.parent.name}.py"] = path.read_bytes()
    root = project(files)
    for unsafe in (False, True):
        made = {path.name: transform(path, unsafe_fixes=unsafe)[0] for path in root.glob("*.py")}
        cli("check", "--fix", *(["--unsafe-fixes"] if unsafe else []))
        assert {path.name: path.read_bytes() for path in root.glob("*.py")} == made


def test_libcsts_own_tool_runs_it(project: Project) -> None:
    root = project({"a.py": "import torch\r\n\x0cif torch.cuda.is_available: pass\r\n", "b.py": "\x0cx = 1\n"})
    command = ["codemod", "--no-format", "-x", "devlint.codemod.DevlintCommand", "--unsafe-fixes", "."]
    run = subprocess.run([sys.executable, "-m", "libcst.tool", *command], capture_output=True, text=True, cwd=root)
    assert (run.returncode, "Traceback" in run.stderr) == (0, False), run.stderr
    assert (root / "a.py").read_bytes() == b"import torch\r\n\x0cif torch.cuda.is_available(): pass\r\n"
    assert (root / "b.py").read_bytes() == b"\x0cx = 1\n"
