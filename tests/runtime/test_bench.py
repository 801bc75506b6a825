from pathlib import Path

import pytest
import torch

from devlint.runtime import bench, bench_ways


def test_the_table_has_every_way_and_says_what_it_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.md"
    assert bench.main(["--quick", "--device", "cpu", "--output", str(file)]) == 0
    text = capsys.readouterr().out
    assert file.read_text() in text
    assert "There is no accelerator in this run" in text
    rows = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in text.splitlines() if line[:2] == "| "
    }
    assert list(rows)[1:] == [bench_ways.title(way) for way in bench_ways.WAYS]
    assert "not run: pinning needs" in rows["pin_memory().to() in the loop"][2]
    assert rows["move by hand"][4:] == ["2.0", "2.0 |"]
    assert rows["device-aware dataset"][4:] == ["16.0", "16.0 |"]
    assert rows["make_loader and DeviceLoader"][4:] == ["2.0", "0.0 |"]
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_device_and_a_bad_path_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bench.main(["--device", "cuda"]) == 2
    assert "bench: cuda cannot be used: " in capsys.readouterr().err
    assert bench.main(["--quick", "--device", "cpu", "--output", str(tmp_path / "no" / "x.md")]) == 2
    assert "bench: cannot write " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--workers", "-1"], ["--samples", "0"], ["--repeats", "x"]])
def test_bad_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.main(arguments)
    assert caught.value.code == 2


def test_every_way_gives_the_same_samples() -> None:
    inputs = torch.arange(12.0).reshape(6, 2)
    dataset = torch.utils.data.TensorDataset(inputs, torch.arange(6))
    for way in bench_ways.WAYS:
        if way is bench_ways.pin_then_move:  # needs an accelerator
            continue
        batches = list(way(dataset, torch.device("cpu"), 4, 0))
        assert [len(targets) for _, targets in batches] == [4, 2]
        order = torch.cat([targets for _, targets in batches])
        assert sorted(order.tolist()) == list(range(6))
        assert torch.equal(torch.cat([given for given, _ in batches]), inputs[order])


def test_lines_are_counted_without_signature_and_docstring() -> None:
    assert bench_ways.lines_of(bench_ways.by_hand) == 2
    assert bench_ways.lines_of(bench_ways.device_aware) > bench_ways.lines_of(bench_ways.prefetched)
