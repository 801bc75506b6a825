"""The command line as a whole: commands, options, exit codes, and where output goes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli, Project

from devlint import __version__
from devlint.options import CHECK, describe

SAFE = "import torch\n\ntorch.probe_safe(1)\n"
FIXED = "import torch\n\ntorch.probed(1)\n"
UNSAFE = "import torch\n\ntorch.probe_unsafe(1)\n"

pytestmark = pytest.mark.usefixtures("probe")


def test_nothing_found_is_exit_code_0(cli: Cli, project: Project) -> None:
    project({"a.py": FIXED, "b.py": "x = 1\n"})
    assert cli("check", ".") == (0, "All checks passed.\n", "")


def test_findings_are_exit_code_1_and_one_line_each(cli: Cli, project: Project) -> None:
    project({"b.py": SAFE, "a.py": UNSAFE})
    found = cli("check", "--output-format", "concise")
    assert found.code == 1
    assert found.out.splitlines() == [
        "a.py:3:1: TDL192 `probe_unsafe` is a probe",
        "b.py:3:1: TDL191 [*] `probe_safe` is a probe",
        "Found 2 findings.",
        "[*] 1 fixable with `--fix` (1 more with `--unsafe-fixes`).",
    ]


def test_fix_writes_safe_fixes_only(cli: Cli, project: Project) -> None:
    root = project({"a.py": SAFE, "b.py": UNSAFE})
    found = cli("check", "--fix", "--output-format=concise")
    assert found.code == 1
    assert found.out.splitlines() == [
        "b.py:3:1: TDL192 `probe_unsafe` is a probe",
        "Found 2 findings (1 fixed, 1 remaining).",
        "1 fixable with `--fix --unsafe-fixes`.",
    ]
    assert (root / "a.py").read_text() == FIXED
    assert (root / "b.py").read_text() == UNSAFE
    assert cli("check", "--fix", "--unsafe-fixes").code == 0
    assert (root / "b.py").read_text() == FIXED


def test_all_fixed_is_exit_code_0_unless_asked_otherwise(cli: Cli, project: Project) -> None:
    root = project({"a.py": SAFE})
    assert cli("check", "--fix") == (0, "Found 1 finding (1 fixed, 0 remaining).\n", "")
    (root / "a.py").write_text(SAFE)
    assert cli("check", "--fix", "--exit-non-zero-on-fix").code == 1


def test_show_fixes_names_what_was_done(cli: Cli, project: Project) -> None:
    project({"a.py": SAFE + "torch.probe_safe(2)\n"})
    assert "a.py:\n  2 x TDL191 (probe-safe)\n" in cli("check", "--fix", "--show-fixes").out


def test_diff_changes_nothing(cli: Cli, project: Project) -> None:
    root = project({"a.py": SAFE, "b.py": FIXED})
    found = cli("check", "--diff")
    assert found.code == 1
    assert found.out == (
        "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n import torch\n \n-torch.probe_safe(1)\n+torch.probed(1)\n"
    )
    assert found.err == "devlint: would fix 1 finding(s) in 1 file(s)\n"
    assert (root / "a.py").read_text() == SAFE
    assert cli("check", "--fix", "--diff") == found
    assert cli("check", "--diff", "b.py") == (0, "", "")


def test_diff_tells_of_a_missing_last_newline(cli: Cli, project: Project) -> None:
    project({"a.py": SAFE.rstrip("\n")})
    assert cli("check", "--diff").out.count("\\ No newline at end of file\n") == 2


def test_selection(cli: Cli, project: Project) -> None:
    project({"a.py": "import torch\ntorch.probe_safe()\ntorch.probe_unsafe()\ntorch.probe_opt_in()\n"})

    def codes(*options: str) -> list[str]:
        return [row["code"] for row in json.loads(cli("check", "--output-format=json", *options).out)]

    assert codes() == ["TDL191", "TDL192"]
    assert codes("--select", "ALL") == ["TDL191", "TDL192", "TDL194"]
    assert codes("--select", "TDL192") == ["TDL192"]
    assert codes("--select", "TDL192,probe-safe") == ["TDL191", "TDL192"]
    assert codes("--extend-select=TDL194") == ["TDL191", "TDL192", "TDL194"]
    assert codes("--ignore", "TDL191") == ["TDL192"]
    assert codes("--select", "TDL1", "--ignore", "TDL191", "--ignore", "tdl192") == ["TDL194"]
    assert codes("--ignore", "TDL1", "--extend-select", "TDL191") == ["TDL191"]


def test_standard_input(cli: Cli, project: Project) -> None:
    project({})
    found = cli("check", "-", "--output-format=concise", stdin=SAFE.encode())
    assert (found.code, found.out.splitlines()[0]) == (1, "<stdin>:3:1: TDL191 [*] `probe_safe` is a probe")
    found = cli("check", "-", "--stdin-filename", "x/a.py", "--output-format=concise", stdin=SAFE.encode())
    assert found.out.startswith("x/a.py:3:1: TDL191")


def test_standard_input_fixed_goes_to_standard_output(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    project({})
    code = "import torch\r\ntorch.probe_safe()\r\ntorch.probe_unsafe()\r\n"
    script = "import sys, pytest; sys.path.insert(0, sys.argv.pop(1)); import conftest; " + (
        "import devlint.checks, devlint.engine; every = (*devlint.checks.checks(), conftest.Probe); "
        "devlint.checks.checks = devlint.engine.checks = lambda: every; "
        "from devlint.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", script, str(Path(__file__).parent), "check", "-", "--fix"]
    run = subprocess.run([*arguments, "--output-format=concise"], input=code.encode(), capture_output=True)
    assert run.stdout == code.replace("probe_safe", "probed").encode()
    assert run.stderr.decode().startswith("<stdin>:3:1: TDL192")
    assert run.returncode == 1


def test_standard_input_is_excluded_by_its_name(cli: Cli, project: Project) -> None:
    project({"pyproject.toml": '[tool.devlint]\nextend-exclude = ["gen"]\n'})
    arguments = ("check", "-", "--stdin-filename", "gen/a.py")
    assert cli(*arguments, stdin=SAFE.encode()).code == 1
    assert cli(*arguments, "--force-exclude", stdin=SAFE.encode()).code == 0


def test_report_to_a_file(cli: Cli, project: Project) -> None:
    root = project({"a.py": SAFE})
    assert cli("check", "--output-format=json", "--output-file", "report.json") == (1, "", "")
    assert [row["code"] for row in json.loads((root / "report.json").read_text())] == ["TDL191"]
    assert cli("check", "--output-format=jsonl", "--output-file", "-").out.startswith('{"cell"')
    found = cli("check", "--output-file", "missing/report.json")
    assert (found.code, found.err) == (
        2,
        "devlint: missing/report.json: cannot write the report: No such file or directory\n",
    )


def test_statistics(cli: Cli, project: Project) -> None:
    project({"a.py": SAFE * 10, "b.py": UNSAFE})
    assert cli("check", "--statistics").out.splitlines()[:2] == [
        "10  TDL191  [*] probe-safe",
        " 1  TDL192  [ ] probe-unsafe",
    ]
    rows = json.loads(cli("check", "--statistics", "--output-format=json").out)
    assert rows[0] == {"code": "TDL191", "name": "probe-safe", "count": 10, "fixable_count": 10}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["chek"], "no command is called 'chek'; did you mean 'check'?"),
        (["a.py"], "no command is called 'a.py'; did you mean `devlint check a.py`?"),
        (["check", "--selct", "TDL1"], "devlint check has no option --selct; did you mean '--select'?"),
        (["check", "-x"], "devlint check has no option -x; see devlint check --help"),
        (["check", "--select"], "--select needs a value: --select CODES"),
        (["check", "--select", "--fix"], "--select needs a value: --select CODES"),
        (["check", "--select="], "--select needs a value: --select CODES"),
        (["check", ""], "'': no such file or folder"),
        (["check", "--fix=yes"], "--fix takes no value"),
        (["check", "--jobs", "none"], "--jobs takes a positive number, not 'none'"),
        (["check", "--jobs=0"], "--jobs takes a positive number, not '0'"),
        (["check", "--output-format", "jsn"], "not 'jsn'; did you mean 'json'?"),
        (["check", "--select", "TDL19x"], "no rule has the code or name 'TDL19x'; did you mean 'TDL"),
        (["check", "--select", "prob-safe"], "no rule has the code or name 'prob-safe'; did you mean 'probe-safe'?"),
        (["check", "--target-torch", "new"], "target-torch takes a release such as 2.6, or auto, not 'new'"),
        (["check", "-", "a.py"], "`-` stands for standard input and cannot be mixed with paths"),
        (["check", "a.py", "--stdin-filename", "b.py"], "give `-` as the path"),
        (["check", "--config", "nix.toml"], "nix.toml: cannot read the configuration: No such file or directory"),
        (["rule"], "devlint rule needs a rule's code or name, or --all"),
        (["rule", "TDL125x"], "no rule is called 'TDL125x'"),
        (["config", "a", "b"], "devlint config takes one path"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(cli: Cli, project: Project, argv: list[str], message: str) -> None:
    project({"a.py": SAFE})
    found = cli(*argv)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("devlint: ") and found.err.count("\n") == 1
    assert message in found.err


def test_help_and_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"devlint {__version__}\n", "")
    assert cli().code == 2
    for command in ("check", "rule", "config", "clean", "completions", "rehearse"):
        assert f"  {command} " in cli("--help").out
    text = cli("check", "--help").out
    assert [option.name for option in CHECK if f"  {option.usage()}" not in text] == []
    assert describe(CHECK) in text


def test_rule_pages(cli: Cli) -> None:
    by_code, by_name = cli("rule", "TDL124"), cli("rule", "uncalled-is-available")
    assert by_code == by_name
    assert by_code.out.startswith("# TDL124 uncalled-is-available\n")
    facts = json.loads(cli("rule", "tdl124", "--output-format", "json").out)[0]
    assert (facts["code"], facts["fix"], facts["default"]) == ("TDL124", "unsafe", True)
    assert facts["page"] == by_code.out
    lines = cli("rule", "--all").out.splitlines()
    assert any(line.startswith("TDL124  on      unsafe  uncalled-is-available: ") for line in lines)
    assert {row["code"] for row in json.loads(cli("rule", "--all", "--output-format=json").out)} >= {"TDL124", "TDL194"}


def test_config_shows_what_holds(cli: Cli, project: Project) -> None:
    root = project({"pyproject.toml": '[tool.devlint]\nselect = ["TDL191"]\ntarget-torch = "2.4"\n', "sub/a.py": ""})
    found = cli("config", "sub")
    assert found.code == 0
    assert found.out.splitlines()[:3] == [
        f"# {root / 'pyproject.toml'}",
        'select = ["TDL191"]',
        'target-torch = "2.4"',
    ]
    assert "# oldest torch release: 2.4\n" in found.out
    assert cli("config", "sub/a.py") == found


def test_reader_that_goes_away_is_no_traceback(project: Project) -> None:
    project({"a.py": "import torch\n" + "if torch.cuda.is_available: pass\n" * 2_000})
    arguments = [sys.executable, "-m", "devlint", "check", "--output-format=concise", "a.py"]
    # Unbuffered, Python takes a write that was cut short for a whole one.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline().startswith(b"a.py:2:4: TDL124")
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 2


def test_output_in_an_encoding_that_lacks_characters(project: Project) -> None:
    project({"größe.py": "import torch\nif torch.cuda.is_available: pass\n"})
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    arguments = [sys.executable, "-m", "devlint", "check", "--output-format=concise"]
    run = subprocess.run(arguments, capture_output=True, env=environment)
    assert (run.returncode, run.stderr) == (1, b"")
    assert run.stdout.startswith(rb"gr\xf6\xdfe.py:2:4: TDL124")


def test_checking_a_file_without_torch_imports_next_to_nothing(project: Project) -> None:
    project({"a.py": "x = 1\n"})
    script = (
        "import sys; before = set(sys.modules); from devlint.cli import main; main(['check', 'a.py']); "
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(run.stdout.splitlines()[-1].split())
    assert "devlint.runner" in imported
    assert not imported & {
        "argparse",
        "ast",
        "dataclasses",
        "libcst",
        "pathspec",
        "re",
        "tokenize",
        "tomllib",
        "typing",
    }


def test_rehearse_is_handed_its_arguments(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project({})
    found = cli("rehearse", "nix.py", "--epochs", "1")
    assert (found.code, found.err) == (2, "devlint rehearse: no such script: nix.py\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = cli("rehearse", "nix.py")
    assert (found.code, found.err) == (
        2,
        "devlint: rehearse runs the script and needs torch: pip install 'devlint[runtime]'\n",
    )


def test_completions_for_bash_work(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "devlint.bash"
    script.write_text(cli("completions", "bash").out)

    def complete(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("devlint", *words))
        text = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _devlint; echo ${{COMPREPLY[@]}}"
        run = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        return run.stdout.split()

    assert complete("ch") == ["check"]
    assert complete("check", "--output-form") == ["--output-format"]
    assert complete("check", "--output-format", "js") == ["json", "jsonl"]
    assert complete("check", "--select", "TDL124") == ["TDL124"]
    assert complete("rule", "uncalled") == ["uncalled-is-available"]


def test_completions_for_other_shells(cli: Cli) -> None:
    assert "bashcompinit" in cli("completions", "zsh").out
    fish = cli("completions", "fish").out
    assert [option.name for option in CHECK if f" -l {option.name} " not in fish] == []
    found = cli("completions", "fsh")
    assert (found.code, found.err) == (
        2,
        "devlint: devlint completions takes one of bash, zsh, fish; did you mean 'fish'?\n",
    )
    assert cli("completions").code == 2
