"""The examples do what they say: one trains, alone and on two processes; the other is full of findings."""

import importlib.util
import os
import re
import runpy
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import Cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_it_trains_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    options = ["--device", "cpu", "--epochs", "1", "--samples", "128", "--checkpoint", "last.pt"]
    monkeypatch.setattr(sys, "argv", ["train.py", *options])
    printed = []
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / "train.py"), run_name="__main__")
        printed.append(capsys.readouterr().out.splitlines())
    first, again = printed
    assert re.fullmatch(r"epoch 1: loss \d\.\d{4}, test loss \d\.\d{4}, accuracy \d+\.\d%", first[0])
    assert first[1] == "2 steps on 1 × cpu, fp32"
    assert first == again


def test_it_trains_under_torchrun(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    script = [str(EXAMPLES / "train.py"), "--device", "cpu", "--epochs", "2", "--samples", "128"]
    command = [sys.executable, *launcher, "--master-port", str(port), *script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 1", "epoch 2", "2 steps on 2 × cpu, fp32"]


def test_it_lints_clean_and_the_article_does_not(cli: Cli) -> None:
    assert cli("check", EXAMPLES / "train.py", "--select", "ALL").code == 0
    found = cli("check", EXAMPLES / "article_train.py", "--select", "ALL", "--output-format", "concise")
    assert found.code == 1
    codes = Counter(re.findall(r": (TDL\d+) ", found.out))
    expected = {"TDL101": 2, "TDL124": 1, "TDL301": 2, "TDL401": 1, "TDL501": 1, "TDL502": 1, "TDL505": 2}
    assert expected.items() <= codes.items()


def test_the_article_can_be_imported() -> None:
    spec = importlib.util.spec_from_file_location("article_train", EXAMPLES / "article_train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Classifier().head.out_features == 10
