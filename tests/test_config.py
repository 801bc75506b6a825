"""The configuration: where it is found, what it may say, and what is said about mistakes in it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, Project

from devlint.config import Configs
from devlint.options import CHECK
from devlint.target import lower_bound, oldest_torch, read_version

CODE = "import torch\ntorch.probe_safe()\ntorch.probe_unsafe()\ntorch.probe_opt_in()\n"

pytestmark = pytest.mark.usefixtures("probe")


def codes(cli: Cli, *arguments: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in json.loads(cli("check", "--output-format=json", *arguments).out):
        name = str(Path(row["filename"]).relative_to(Path.cwd()))
        found.setdefault(name, []).append(row["code"])
    return found


def test_the_nearest_file_counts(cli: Cli, project: Project) -> None:
    project(
        {
            "pyproject.toml": '[tool.devlint]\nselect = ["TDL191"]\n',
            "a.py": CODE,
            "sub/devlint.toml": 'select = ["TDL192"]\n',
            "sub/pyproject.toml": '[tool.devlint]\nselect = ["TDL194"]\n',
            "sub/a.py": CODE,
            "other/pyproject.toml": "[tool.black]\n# devlint is configured above\n",
            "other/deep/a.py": CODE,
        }
    )
    assert codes(cli) == {"a.py": ["TDL191"], "sub/a.py": ["TDL192"], "other/deep/a.py": ["TDL191"]}
    assert codes(cli, "sub/a.py", "a.py") == {"a.py": ["TDL191"], "sub/a.py": ["TDL192"]}
    assert set(map(tuple, codes(cli, "--config", "sub/pyproject.toml").values())) == {("TDL194",)}


def test_the_command_line_wins(cli: Cli, project: Project) -> None:
    project(
        {
            "pyproject.toml": '[tool.devlint]\nselect = ["TDL191"]\nextend-select = ["TDL194"]\nignore = ["TDL192"]\n',
            "a.py": CODE,
        }
    )
    assert codes(cli)["a.py"] == ["TDL191", "TDL194"]
    assert codes(cli, "--select", "TDL192")["a.py"] == ["TDL192"]
    assert codes(cli, "--ignore", "TDL191")["a.py"] == ["TDL194"]
    assert codes(cli, "--extend-select", "TDL192", "--select", "TDL191")["a.py"] == ["TDL191", "TDL192"]


def test_per_file_ignores(cli: Cli, project: Project) -> None:
    project(
        {
            "pyproject.toml": (
                '[tool.devlint]\nselect = ["TDL19"]\n[tool.devlint.per-file-ignores]\n'
                '"tests/" = ["TDL191", "probe-unsafe"]\n"*_gen.py" = ["ALL"]\n'
            ),
            "a.py": CODE,
            "tests/a.py": CODE,
            "tests/b_gen.py": CODE,
            "c_gen.py": CODE,
        }
    )
    assert codes(cli) == {"a.py": ["TDL191", "TDL192", "TDL194"], "tests/a.py": ["TDL194"]}


def test_flags_can_be_configured(cli: Cli, project: Project) -> None:
    root = project({"pyproject.toml": '[tool.devlint]\nfix = true\noutput-format = "concise"\n', "a.py": CODE})
    assert cli("check").out.startswith("a.py:3:1: TDL192")
    assert "torch.probed()\ntorch.probe_unsafe()" in (root / "a.py").read_text()


def test_jobs_can_be_configured(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"pyproject.toml": "[tool.devlint]\njobs = 2\n", "a.py": CODE, "b.py": CODE, "c.py": CODE})
    asked: list[int] = []

    def fork_map(work: Callable[[str], object], items: list[str], jobs: int) -> list[object]:
        asked.append(jobs)
        return [work(item) for item in items]

    monkeypatch.setattr("devlint.parallel.fork_map", fork_map)
    cli("check", "--no-cache")
    cli("check", "--no-cache", "--jobs", "3")
    cli("check", "--no-cache", "--jobs", "1")
    assert asked == [2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["TDL1"]', "unknown key 'selct' in [tool.devlint]; did you mean 'select'?"),
        ("per-file-ignore = {}", "unknown key 'per-file-ignore' in [tool.devlint]; did you mean 'per-file-ignores'?"),
        ("xyzzy = 1", "unknown key 'xyzzy' in [tool.devlint]"),
        ('stdin-filename = "a.py"', "unknown key 'stdin-filename'"),
        ('select = "TDL1"', "select must be a list of strings, not 'TDL1'"),
        ("select = [1]", "select must be a list of strings, not [1]"),
        ('select = ["TDL9999"]', "no rule has the code or name 'TDL9999'; did you mean 'TDL90"),
        ('ignore = ["probe-saf"]', "no rule has the code or name 'probe-saf'; did you mean 'probe-safe'?"),
        ('per-file-ignores = { "a.py" = ["TDL19x"] }', "no rule has the code or name 'TDL19x'"),
        ("per-file-ignores = { a = 1 }", "per-file-ignores must be a table of patterns and lists of codes"),
        ('fix = "yes"', "fix must be true or false, not 'yes'"),
        ("jobs = 0", "jobs must be a positive number, not 0"),
        ("jobs = true", "jobs must be a positive number, not True"),
        ("target-torch = 2.6", "target-torch must be a string, not 2.6"),
        ('target-torch = "new"', "target-torch takes a release such as 2.6, or auto, not 'new'"),
        ('fix-style = "runtim"', "fix-style takes one of torch, runtime, not 'runtim'; did you mean 'runtime'?"),
        ("select = [", "not valid TOML: "),
        ('exclude = ["!"]', "'!' is no pattern as in .gitignore"),
        ('per-file-ignores = { "!" = ["ALL"] }', "'!' is no pattern as in .gitignore"),
    ],
)
def test_a_mistake_names_the_file_and_the_nearest_thing(cli: Cli, project: Project, text: str, message: str) -> None:
    root = project({"pyproject.toml": f"[tool.devlint]\n{text}\n", "a.py": CODE})
    found = cli("check")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"devlint: {root / 'pyproject.toml'}: ") and found.err.count("\n") == 1
    assert message in found.err


def test_a_mistake_in_a_nested_file(cli: Cli, project: Project) -> None:
    root = project({"a.py": CODE, "sub/devlint.toml": "fixx = true\n", "sub/a.py": CODE})
    assert f"{root / 'sub' / 'devlint.toml'}: unknown key 'fixx'" in cli("check").err
    assert cli("check", "a.py").code == 1


def test_another_tools_broken_file_is_not_ours(cli: Cli, project: Project) -> None:
    project({"pyproject.toml": "[tool.black\n", "a.py": CODE})
    assert cli("check").code == 1


def test_a_file_without_our_table_given_outright(cli: Cli, project: Project) -> None:
    project({"other.toml": "", "pyproject.toml": "[tool.black]\n", "a.py": CODE})
    assert cli("check", "--config", "pyproject.toml").err == "devlint: pyproject.toml: it has no [tool.devlint] table\n"
    assert cli("check", "--config", "other.toml").code == 1


def test_every_configurable_option_has_a_reader() -> None:
    assert {option.kind for option in CHECK if option.configurable} <= {"flag", "list", "count", "value"}


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.6", (2, 6)), ("2.10.1", (2, 10)), (" v2.4.0+cu121 ", (2, 4)), ("2", None), ("2.x", None), ("", None)],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert read_version(text) == version


@pytest.mark.parametrize(
    ("requirement", "bound"),
    [
        ("torch>=2.1", (2, 1)),
        ("torch >= 2.1, < 3", (2, 1)),
        ("torch[opt]==2.0.1 ; python_version > '3.8'", (2, 0)),
        ("torch~=2.2", (2, 2)),
        ("torch (>=1.13)", (1, 13)),
        ("torch^2.1", (2, 1)),
        ('    install_requires=["torch>=1.8", "numpy>=1.20"],', (1, 8)),
        ("torch==2.*", (2, 0)),
        ("torch", None),
        ("torch<3", None),
        ("torchvision>=0.15", None),
        ("pytorch>=2.1", None),
        ("torch-scatter>=2.1", None),
        ("# torch>=1.0", None),
        ("numpy>=1.20", None),
    ],
)
def test_lower_bounds(requirement: str, bound: tuple[int, int] | None) -> None:
    assert lower_bound(requirement) == bound


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({}, None),
        ({"pyproject.toml": '[project]\ndependencies = ["numpy", "torch>=2.3"]\n'}, (2, 3)),
        ({"pyproject.toml": '[project.optional-dependencies]\ntrain = ["torch==2.2.1"]\n'}, (2, 2)),
        ({"pyproject.toml": '[dependency-groups]\ndev = [{ include-group = "x" }, "torch>=2.5"]\n'}, (2, 5)),
        ({"pyproject.toml": '[tool.poetry.dependencies]\ntorch = "^2.1"\n'}, (2, 1)),
        ({"pyproject.toml": '[tool.poetry.group.dev.dependencies]\ntorch = { version = "2.0.1" }\n'}, (2, 0)),
        ({"requirements.txt": "numpy\ntorch>=1.13  # why\n", "requirements-dev.txt": "torch>=2.0\n"}, (1, 13)),
        ({"setup.cfg": "[options]\ninstall_requires =\n    torch>=1.10\n"}, (1, 10)),
        ({"pyproject.toml": "[project\n", "setup.py": 'setup(install_requires=["torch>=1.9"])\n'}, (1, 9)),
    ],
)
def test_target_is_read_from_the_dependencies(
    project: Project, files: dict[str, str | bytes], version: tuple[int, int] | None
) -> None:
    root = project(files)
    assert oldest_torch(str(root)) == version


def test_target_auto_is_the_projects_own(project: Project) -> None:
    root = project(
        {"pyproject.toml": '[project]\ndependencies = ["torch>=2.3"]\n[tool.devlint]\ntarget-torch="auto"\n'}
    )
    config = Configs({}).for_folder(str(root))
    assert config.settings(str(root / "a.py")).target_torch == (2, 3)
