"""Idioms of model libraries that once were false alarms, or that must not be lost."""

import pytest

torch = pytest.importorskip("torch")

from devlint.runtime._rehearse import rehearse  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_histogram_of_whole_numbers(dtype: "torch.dtype") -> None:
    """Mixture-of-experts models count tokens per expert with ``histc`` on int32, which the CPU has no kernel for."""
    with rehearse("cuda") as report:
        experts = torch.tensor([0, 3, 3, 1], dtype=dtype, device="cuda")
        counts = torch.histc(experts, bins=4, min=0, max=3)
        assert counts.dtype is dtype and counts.is_cuda
        assert counts.tolist() == [1, 1, 0, 2]
    assert report.clean
    assert any("run in a wider dtype" in note and str(dtype)[6:] in note for note in report.notes)


def test_a_model_that_moves_its_buffer_is_clean_and_counted() -> None:
    """Rotary embeddings hold ``inv_freq`` and copy it to the input's device: legal, and a transfer each call."""
    with rehearse("cuda") as report:
        frequencies = torch.rand(4)
        positions = torch.arange(6, device="cuda").float()
        angles = positions[:, None] @ frequencies[None].to(positions.device)
        assert angles.is_cuda
    assert report.clean
    assert [(transfer.direction, transfer.bytes) for transfer in report.transfers] == [("H2D", 16)]
