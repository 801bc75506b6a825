"""Nested and quantised tensors: rehearsed where that is possible, else refused by name."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from devlint.runtime._rehearse import RehearsalUnsupported, RehearsedDeviceError, rehearse  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch.ao.quantization
]


def ragged(**options: object) -> "torch.Tensor":
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], **options)


def test_strided_nested_tensors() -> None:
    with rehearse("cuda") as report:
        made, moved = ragged(device="cuda"), ragged().to("cuda")
        assert made.is_cuda and moved.is_cuda
        padded = nn.functional.linear(made, torch.ones(5, 3, device="cuda")).to_padded_tensor(0.0)
        assert padded.is_cuda and padded.shape == (2, 4, 5)
    assert report.clean


def test_mismatch_of_a_nested_tensor() -> None:
    with rehearse("cuda") as report, pytest.raises(RehearsedDeviceError, match="same device"):
        nn.functional.linear(ragged(device="cuda"), torch.ones(5, 3))
    assert "(2, -1, -1)" in report.mismatches[0].message


def test_jagged_nested_tensors_are_refused() -> None:
    with rehearse("cuda") as report:
        host = ragged(layout=torch.jagged)
        assert host.device.type == "cpu"
        with pytest.raises(RehearsalUnsupported, match="jagged nested tensors"):
            host.to("cuda")
        with pytest.raises(RehearsalUnsupported, match="jagged nested tensors"):
            ragged(layout=torch.jagged, device="cuda")
    assert report.clean and len(report.notes) == 1


def test_quantised_tensors_live_on_the_device() -> None:
    with rehearse("cuda") as report:
        made = torch.quantize_per_tensor(torch.randn(4).cuda(), 0.1, 0, torch.qint8)
        moved = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8).to("cuda")
        assert made.is_cuda and moved.int_repr().is_cuda and made.dequantize().is_cuda
        assert torch.fake_quantize_per_tensor_affine(moved.dequantize(), 0.1, 0, 0, 255).is_cuda
    assert report.clean


def test_quantised_layers_have_no_cuda_kernel() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    text = "Could not run 'quantized::linear_dynamic'"
    with rehearse("cuda") as report, pytest.raises(NotImplementedError, match=text):
        model.to("cuda")(torch.randn(2, 4, device="cuda"))
    assert not report.clean
