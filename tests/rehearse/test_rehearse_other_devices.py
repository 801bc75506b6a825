"""XPU and MPS by the same table, in their own words; what can't be rehearsed is refused by name."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from devlint.runtime import DeviceMismatchError  # noqa: E402
from devlint.runtime._rehearse import RehearsalUnsupported, RehearsedDeviceError, rehearse  # noqa: E402

ORIGINAL = torch.cuda.is_available()


@pytest.mark.parametrize(("kind", "dtype"), [("xpu", torch.bfloat16), ("mps", torch.float16)])
def test_training_step(kind: str, dtype: "torch.dtype") -> None:
    with rehearse(kind) as report:
        module = getattr(torch, kind)
        assert module.is_available() and torch.accelerator.current_accelerator().type == kind
        assert torch.cuda.is_available() is ORIGINAL
        model = nn.Linear(3, 2).to(kind)
        optimizer = torch.optim.AdamW(model.parameters())
        with torch.autocast(kind, dtype=dtype):
            out = model(torch.ones(1, 3, device=kind))
        assert out.dtype is dtype and str(out.device) == f"{kind}:0"
        out.float().sum().backward()
        optimizer.step()
        module.synchronize()
        module.empty_cache()
        module.manual_seed(0)
    assert report.clean and report.steps == 1 and [sync.kind for sync in report.syncs] == ["synchronize"]


@pytest.mark.parametrize(
    ("kind", "text"), [("xpu", "different from other tensors on xpu:0"), ("mps", "two devices, mps:0 and cpu")]
)
def test_input_left_on_the_host(kind: str, text: str) -> None:
    with pytest.raises(RehearsedDeviceError, match=text) as caught, rehearse(kind) as report:
        nn.Linear(3, 2).to(kind)(torch.ones(1, 3))
    assert isinstance(caught.value, DeviceMismatchError)
    assert caught.value.devices["mat1"] == torch.device("cpu") and len(report.mismatches) == 1


@pytest.mark.parametrize("kind", ["xpu", "mps"])
def test_index_out_of_range(kind: str) -> None:
    with pytest.raises(RuntimeError, match="device index is out of range"), rehearse(kind):
        torch.zeros(1, device=f"{kind}:3")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, dtype=torch.float64).to("mps"),
        lambda: torch.zeros(2, dtype=torch.float64, device="mps"),
        lambda: nn.Linear(2, 1).double().to("mps"),
    ],
)
def test_mps_has_no_float64(make: Callable) -> None:
    with pytest.raises(TypeError, match="doesn't support float64"), rehearse("mps"):
        make()


def test_mps_is_asked_for_as_scripts_do() -> None:
    assert not torch.backends.mps.is_available()
    with rehearse("mps"):
        assert torch.backends.mps.is_available() and torch.mps.current_allocated_memory() == 0
        x = torch.zeros(64, device="mps")
        assert torch.mps.current_allocated_memory() == x.nbytes
    assert not torch.backends.mps.is_available()


ROWS = [(2,), (3,)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.nested.nested_tensor([torch.ones(size) for size in ROWS], device="cuda"), "nested tensor"),
        (lambda: torch.nested.nested_tensor([torch.ones(size) for size in ROWS]).to("cuda"), "nested tensor"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(size) for size in ROWS], layout=torch.jagged).to("cuda"),
            "nested tensor",
        ),
        (
            lambda: torch.nested.as_nested_tensor([torch.ones(size, device="cuda") for size in ROWS]),
            "nested tensor",
        ),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).cuda(), "quantised tensor"),
        (lambda: torch.cuda.CUDAGraph(), "CUDAGraph"),
    ],
)
def test_refused_by_name(make: Callable, text: str) -> None:
    with pytest.raises(RehearsalUnsupported, match=text), rehearse("cuda") as report:
        make()
    assert text in report.notes[0]


def test_fake_tensors_are_refused() -> None:
    with pytest.raises(RehearsalUnsupported, match="fake tensors"), rehearse("cuda") as report:
        torch.export.export(nn.Linear(3, 2).to("cuda"), (torch.ones(1, 3, device="cuda"),))
    assert "torch.export" in report.notes[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["quantized::linear_dynamic", "quantized::add"])
def test_quantised_operators_have_no_kernel_on_the_device(name: str) -> None:
    packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8), None)
    with pytest.raises(NotImplementedError, match=f"Could not run '{name}' with"), rehearse("cuda") as report:
        x = torch.ones(1, 3, device="cuda")
        if name.endswith("add"):
            quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
            assert quantised.is_cuda and quantised.dequantize().is_cuda
            torch.ops.quantized.add(quantised, quantised, 0.1, 0)
        torch.ops.quantized.linear_dynamic(x, packed)
    assert len(report.mismatches) == 1


def test_data_parallel_on_more_devices_than_before() -> None:
    for count in (1, 3):
        with rehearse("cuda", count) as report:
            result = nn.DataParallel(nn.Linear(4, 2).to("cuda"))(torch.ones(6, 4))
        assert report.clean and result.shape == (6, 2)
