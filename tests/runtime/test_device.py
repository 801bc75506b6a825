import threading
from typing import Any

import pytest
import torch

from devlint.runtime import (
    DeviceUnavailableError,
    MixedDeviceError,
    best_device,
    default_device,
    module_device,
    rehearse,
)
from devlint.runtime.device import why_unavailable


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)


def test_without_an_accelerator_it_is_the_cpu() -> None:
    assert best_device() == torch.device("cpu")


def test_the_preferred_device_wins() -> None:
    assert best_device("meta") == torch.device("meta")
    with rehearse(count=2):
        assert best_device("cpu") == torch.device("cpu")
        assert best_device("cuda:1") == torch.device("cuda:1")


def test_the_accelerator_comes_with_its_index() -> None:
    with rehearse():
        assert best_device() == torch.device("cuda:0")
        assert best_device("cuda") == torch.zeros(1, device="cuda").device


def test_each_process_of_a_launcher_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with rehearse(count=2):
        assert best_device() == torch.device("cuda:1")
        assert best_device("cuda") == torch.device("cuda:1")
    with rehearse(count=1):  # one visible device a process
        assert best_device() == torch.device("cuda:0")


def test_a_rank_past_the_devices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "5")
    with rehearse(count=2), pytest.raises(DeviceUnavailableError, match=r"2 cuda devices.*LOCAL_RANK is 5"):
        best_device()


def test_a_rank_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "one")
    with rehearse(), pytest.raises(ValueError, match="LOCAL_RANK is 'one'"):
        best_device()


def test_an_index_past_the_devices_is_refused() -> None:
    with rehearse(), pytest.raises(DeviceUnavailableError, match="sees 1 cuda device, counted from 0"):
        best_device("cuda:3")


@pytest.mark.parametrize("device", ["cuda", "xpu", "mps", "hpu"])
def test_a_missing_device_says_why(device: str) -> None:
    with pytest.raises(
        DeviceUnavailableError, match=rf"{device} cannot be used: .*(buil[dt] with|no backend).*use 'cpu'"
    ):
        best_device(device)


class FakeCuda:
    """A CUDA build that sees no device."""

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 0


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [("", "CUDA_VISIBLE_DEVICES=''"), ("-1", "CUDA_VISIBLE_DEVICES='-1'"), (None, "driver|no cuda device")],
)
def test_hidden_devices_and_missing_drivers_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, hidden: str | None, expected: str
) -> None:
    monkeypatch.setattr(torch, "cuda", FakeCuda)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    import re

    assert re.search(expected, why_unavailable(torch.device("cuda")))


def test_a_module_has_the_device_of_its_tensors() -> None:
    assert module_device(torch.nn.Linear(2, 2)) == torch.device("cpu")
    assert module_device(torch.nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert module_device(torch.nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")


def test_a_module_without_tensors_has_the_default() -> None:
    assert module_device(torch.nn.ReLU()) == torch.device("cpu")
    assert module_device(torch.nn.ReLU(), default="meta") == torch.device("meta")
    with default_device("meta"):
        assert module_device(torch.nn.ReLU()) == torch.device("meta")


def test_a_split_module_is_listed_by_name() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2, device="meta"))
    with pytest.raises(MixedDeviceError) as caught:
        module_device(net)
    assert isinstance(caught.value, RuntimeError)
    assert "cpu: 0.weight, 0.bias" in str(caught.value)
    assert "meta: 1.weight, 1.bias, 1.running_mean, 1.running_var" in str(caught.value)
    assert caught.value.devices["1.bias"] == torch.device("meta")


def test_long_lists_are_cut_short() -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(5)), torch.nn.Linear(1, 1, device="meta"))
    with pytest.raises(MixedDeviceError, match="and 4 more"):
        module_device(net)


def made_on() -> torch.device:
    return torch.zeros(1).device


def test_the_default_device_nests_and_restores() -> None:
    with default_device("meta") as device:
        assert device == torch.device("meta")
        assert made_on().type == "meta"
        with default_device("cpu"):
            assert made_on().type == "cpu"
        assert made_on().type == "meta"
    assert made_on().type == "cpu"


def test_the_former_default_comes_back() -> None:
    torch.set_default_device("meta")
    try:
        with default_device("cpu"):
            assert made_on().type == "cpu"
        assert made_on().type == "meta"
    finally:
        torch.set_default_device(None)
    assert made_on().type == "cpu"


def test_it_restores_after_an_error_and_can_be_entered_again() -> None:
    scope = default_device("meta")
    for _ in range(2):
        with pytest.raises(KeyError), scope:
            raise KeyError
        assert made_on().type == "cpu"
    with scope, scope:
        assert made_on().type == "meta"
    assert made_on().type == "cpu"


def test_it_decorates() -> None:
    @default_device("meta")
    def build(n: int = 2) -> torch.Tensor:
        """Makes one."""
        return torch.zeros(n)

    assert build(3).device.type == "meta"
    assert (build.__name__, build.__doc__) == ("build", "Makes one.")
    assert made_on().type == "cpu"


def test_it_holds_for_this_thread_only() -> None:
    seen: list[Any] = []
    with default_device("meta"):
        thread = threading.Thread(target=lambda: seen.append(made_on().type))
        thread.start()
        thread.join()
    assert seen == ["cpu"]


def test_functions_that_run_later_are_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot decorate .*items: its body runs after"):

        @default_device("meta")
        def items() -> Any:
            yield torch.zeros(1)


def test_a_missing_default_device_says_why() -> None:
    with pytest.raises(DeviceUnavailableError, match="build without CUDA"), default_device("cuda"):
        pass
    with pytest.raises(ValueError, match="not a device"):
        default_device("gpu")
