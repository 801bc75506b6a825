"""Which files a run is about."""

import os
from pathlib import Path

import pytest
from conftest import Project

from devlint.config import Configs
from devlint.files import find


def found(*paths: str, **flags: object) -> list[str]:
    result = find(paths or ["."], Configs({name.replace("_", "-"): value for name, value in flags.items()}))
    assert not result.failed
    return [path.replace(os.sep, "/") for path in result.files]


def test_python_files_in_order_and_once(project: Project) -> None:
    project(dict.fromkeys(("b.py", "a/z.py", "a/b.pyi", "a/c.txt", "a-b.py", "script", "a/b/c.py"), ""))
    assert found() == ["a-b.py", "a/b.pyi", "a/b/c.py", "a/z.py", "b.py"]
    assert found("b.py", "a", "b.py", "a/z.py") == ["a/b.pyi", "a/b/c.py", "a/z.py", "b.py"]
    assert found("script") == ["script"]


def test_usual_folders_are_left_out(project: Project) -> None:
    project({f"{folder}/a.py": "" for folder in (".git", ".venv", "build", "src", "node_modules", "x.egg-info")})
    assert found() == ["src/a.py"]
    assert found(exclude=[]) == [
        ".git/a.py",
        ".venv/a.py",
        "build/a.py",
        "node_modules/a.py",
        "src/a.py",
        "x.egg-info/a.py",
    ]


def test_exclude_patterns_are_relative_to_the_configuration(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(
        {
            "pyproject.toml": '[tool.devlint]\nextend-exclude = ["gen/*.py", "/top.py", "!gen/keep.py"]\n',
            **dict.fromkeys(("top.py", "sub/top.py", "gen/a.py", "gen/keep.py", "sub/gen/b.py", "build/x.py"), ""),
        }
    )
    assert found() == ["gen/keep.py", "sub/gen/b.py", "sub/top.py"]
    assert found(str(root / "gen")) == [str(root / "gen" / "keep.py")]
    monkeypatch.chdir(root / "sub")
    assert found("..") == ["../gen/keep.py", "../sub/gen/b.py", "../sub/top.py"]


def test_exclude_replaces_the_usual_folders(project: Project) -> None:
    project({"build/a.py": "", "gen/a.py": "", "pyproject.toml": '[tool.devlint]\nexclude = ["gen"]\n'})
    assert found() == ["build/a.py"]


def test_what_is_named_outright_is_checked_unless_exclusion_is_forced(project: Project) -> None:
    project(
        {"pyproject.toml": '[tool.devlint]\nextend-exclude = ["gen"]\n', "gen/a.py": "", "venv/b.py": "", "c.py": ""}
    )
    paths = ("gen/a.py", "venv/b.py", "c.py")
    assert found(*paths) == ["c.py", "gen/a.py", "venv/b.py"]
    assert found(*paths, force_exclude=True) == ["c.py"]
    assert found("gen", "venv", force_exclude=True) == []
    assert found("gen", "venv") == ["venv/b.py"]


def test_nested_configuration_excludes_below_itself(project: Project) -> None:
    project(
        {
            "sub/devlint.toml": 'extend-exclude = ["gen"]\n',
            "sub/gen/a.py": "",
            "sub/b.py": "",
            "gen/c.py": "",
        }
    )
    assert found() == ["gen/c.py", "sub/b.py"]


def test_gitignore(project: Project) -> None:
    (project({}) / ".git").mkdir()
    project(
        {
            ".gitignore": "# comment\n\n!\n*_gen.py\n/out/\ndata\n",
            ".git/info/exclude": "local.py\n",
            "sub/.gitignore": "!keep_gen.py\nhere.py\n",
            **dict.fromkeys(("a.py", "a_gen.py", "out/b.py", "sub/out/c.py", "sub/keep_gen.py"), ""),
            **dict.fromkeys(("sub/here.py", "here.py", "local.py", "data/d.py", "sub/data/e.py"), ""),
        }
    )
    assert found() == ["a.py", "here.py", "sub/keep_gen.py", "sub/out/c.py"]
    assert found("sub") == ["sub/keep_gen.py", "sub/out/c.py"]
    assert len(found(no_respect_gitignore=True)) == 10
    assert found("a_gen.py") == ["a_gen.py"]
    assert found("a_gen.py", force_exclude=True) == []


def test_gitignore_counts_only_in_a_repository(project: Project) -> None:
    project({".gitignore": "a.py\n", "a.py": ""})
    assert found() == ["a.py"]


def test_links_to_folders_are_not_followed(project: Project, tmp_path: Path) -> None:
    root = project({"a/b.py": ""})
    (root / "a" / "up").symlink_to("..")
    (root / "c").symlink_to("a")
    assert found() == ["a/b.py"]
