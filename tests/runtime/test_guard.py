import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch

from devlint.runtime import (
    DeviceMismatchError,
    MixedDeviceError,
    check_devices,
    device_check,
    guard_devices,
    rehearse,
)


def cpu(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape)


def meta(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, device="meta")


def test_one_device_passes() -> None:
    check_devices({"x": cpu(2), "y": [cpu(1)]}, model=torch.nn.Linear(1, 1))
    check_devices(meta(2), device="meta")
    check_devices()
    check_devices("text", None)


def test_the_odd_one_is_named_with_path_and_shape() -> None:
    with pytest.raises(DeviceMismatchError) as caught:
        check_devices({"x": meta(2), "m": [cpu(4, 8)]}, extra=meta(1))
    text = str(caught.value)
    assert "tensors on 2 devices: batch['m'][0] of shape (4, 8) is on cpu, not on meta" in text
    assert "meta: batch['x'], extra" in text
    assert caught.value.devices["batch['m'][0]"] == torch.device("cpu")
    assert isinstance(caught.value, RuntimeError)


def test_several_batches_are_numbered() -> None:
    with pytest.raises(DeviceMismatchError, match=r"batches\[1\] of shape \(3,\) is on meta"):
        check_devices(cpu(2), meta(3))


def test_an_explicit_device_holds_for_all() -> None:
    with pytest.raises(DeviceMismatchError, match=r"not on meta:\n  cpu: batch\['x'\]"):
        check_devices({"x": cpu(2)}, device="meta")
    with pytest.raises(DeviceMismatchError, match="not on meta"):
        check_devices(torch.tensor(1.0), device="meta")
    with pytest.raises(ValueError, match="not a device: 'gpu'"):
        check_devices(device="gpu")


def test_a_scalar_on_the_cpu_goes_with_any_device() -> None:
    check_devices(torch.tensor(2.0), meta(2), torch.tensor(1))
    with pytest.raises(DeviceMismatchError):
        check_devices(cpu(2), torch.tensor(2.0, device="meta"))


def test_a_type_without_index_fits_every_index() -> None:
    with rehearse(count=2):
        check_devices(torch.zeros(1, device="cuda:1"), device="cuda")
        with pytest.raises(DeviceMismatchError, match="not on cuda:0"):
            check_devices(torch.zeros(1, device="cuda:1"), device="cuda:0")


@device_check("inputs", "targets")
def loss(inputs: Any, targets: Any = None, *, weight: Any = None) -> str:
    """The loss."""
    return "called"


def test_a_decorated_function_keeps_its_face() -> None:
    assert (loss.__name__, loss.__doc__) == ("loss", "The loss.")
    assert list(inspect.signature(loss).parameters) == ["inputs", "targets", "weight"]


def test_names_and_devices_stay_in_step() -> None:
    assert loss(cpu(2), "no tensor") == "called"
    assert loss(cpu(2), weight=meta(1)) == "called"
    with pytest.raises(
        DeviceMismatchError, match=r"in loss: targets\['y'\]\[0\] of shape \(3,\) is on meta, not on cpu"
    ):
        loss(cpu(2), {"y": [meta(3)]})
    with pytest.raises(DeviceMismatchError, match="targets"):
        loss(targets=meta(2), inputs=cpu(2))


def test_wrong_calls_are_the_functions_own_errors() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'inputs'"):
        loss()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        loss(cpu(1), nope=1)  # type: ignore[call-arg]


def test_mistakes_show_at_decoration() -> None:
    with pytest.raises(TypeError, match="has no parameter 'target'; it has: inputs, targets"):
        device_check("target")(lambda inputs, targets: None)
    with pytest.raises(TypeError, match="takes parameter names"):
        device_check(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="below @staticmethod"):
        device_check()(staticmethod(len))  # type: ignore[type-var]
    with pytest.raises(ValueError, match="on_mismatch is 'log'"):
        device_check(on_mismatch="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a device: 'last'"):
        device_check(device="last")


def test_without_names_all_parameters_are_checked() -> None:
    @device_check()
    def every(a: Any, *rest: Any, key: Any = None, **more: Any) -> None: ...

    every(cpu(1), cpu(1), key=cpu(1), other=cpu(1))
    for args, kwargs, path in (
        ((cpu(1), cpu(1), meta(1)), {}, r"rest\[1\]"),
        ((cpu(1),), {"key": meta(1)}, "key"),
        ((cpu(1),), {"other": meta(1)}, r"more\['other'\]"),
    ):
        with pytest.raises(DeviceMismatchError, match=f"every: {path} of shape"):
            every(*args, **kwargs)


class Net(torch.nn.Module):
    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self.fc = torch.nn.Linear(2, 2, device=device)

    @device_check("x", device="module")
    def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
        return self.fc(x)


def test_the_device_can_be_the_modules() -> None:
    assert Net()(meta(1, 2)).device.type == "meta"
    with pytest.raises(DeviceMismatchError, match=r"Net.forward: x of shape \(1, 2\) is on cpu, not on meta"):
        Net()(cpu(1, 2))

    @device_check("x", device="module")
    def free(x: Any) -> None: ...

    with pytest.raises(TypeError, match=r"no argument of .*free is a module"):
        free(cpu(1))


def test_the_device_can_be_given() -> None:
    @device_check("x", device=torch.device("meta"))
    def given(x: Any) -> None: ...

    given(meta(1))
    with pytest.raises(DeviceMismatchError, match=r"not on meta in .*given"):
        given(cpu(1))


def test_a_warning_goes_on() -> None:
    @device_check("a", "b", on_mismatch="warn")
    def lenient(a: Any, b: Any) -> str:
        return "went on"

    with pytest.warns(RuntimeWarning, match="b of shape"):
        assert lenient(cpu(1), meta(1)) == "went on"


def test_under_compile_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert loss(cpu(1), meta(1)) == "called"
    net = torch.nn.Identity()
    net.register_buffer("b", meta(1))
    guard_devices(net)
    assert net(cpu(1)).device.type == "cpu"


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(2, 2, device="meta")

    def forward(self, batch: Any, *, mask: Any = None) -> str:
        return "ran"


def test_a_guard_names_the_inputs_and_can_be_taken_off() -> None:
    net = Plain()
    handle = guard_devices(net)
    assert net({"x": meta(1)}, mask=torch.tensor(0.5)) == "ran"
    with pytest.raises(
        DeviceMismatchError, match=r"Plain is on meta, its inputs are not:\n  cpu: batch\['x'\] of shape"
    ):
        net({"x": cpu(1)})
    with pytest.raises(DeviceMismatchError, match=r"cpu: mask of shape \(3,\)"):
        net(meta(1), mask=cpu(3))
    handle.remove()
    assert net(cpu(1)) == "ran"


def test_a_guard_without_parameters_lets_all_pass() -> None:
    net = torch.nn.ReLU()
    guard_devices(net)
    assert net(cpu(1)).device.type == "cpu"


def test_a_guard_lists_a_split_module_also_after_a_move() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1, device="meta"))
    handle = guard_devices(net)
    with pytest.raises(MixedDeviceError, match=r"meta: 1.weight"):
        net(cpu(1, 1))
    net[1] = torch.nn.Linear(1, 1)
    assert net(cpu(1, 1)).shape == (1, 1)
    net[0].to("meta")
    with pytest.raises(MixedDeviceError, match=r"meta: 0.weight"):
        net(meta(1, 1))
    handle.remove()


def test_a_guard_holds_under_python_O() -> None:
    program = (
        "import torch; from devlint.runtime import guard_devices, DeviceMismatchError\n"
        "net = torch.nn.Linear(1, 1); guard_devices(net)\n"
        "try: net(torch.zeros(1, 1, device='meta'))\n"
        "except DeviceMismatchError: print('guarded')\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "guarded\n"
