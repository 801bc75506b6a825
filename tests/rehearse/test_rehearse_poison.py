"""With ``poison``, a non-blocking device-to-host copy shows its race until the host waits."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from devlint.runtime._rehearse import rehearse  # noqa: E402

WAITS: dict[str, Callable[["torch.Tensor"], object]] = {
    "synchronize": lambda x: torch.cuda.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "event": lambda x: torch.cuda.Event().synchronize(),
    "item": lambda x: x.sum().item(),
    "another copy": lambda x: x.cpu(),
}


def to_cpu(x: "torch.Tensor") -> "torch.Tensor":
    return x.to("cpu", non_blocking=True)


def into_pinned(x: "torch.Tensor") -> "torch.Tensor":
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)


@pytest.mark.parametrize("copy", [to_cpu, into_pinned])
@pytest.mark.parametrize("wait", WAITS)
def test_race_shows_until_a_wait(copy: Callable, wait: str) -> None:
    with rehearse("cuda", poison=True) as report:
        device = torch.tensor([1.0, 2.0]).to("cuda")
        host = copy(device)
        assert torch.isnan(host).all() and host.is_pinned()
        WAITS[wait](device)
        assert host.tolist() == [1.0, 2.0]
        whole = copy(torch.tensor([3, 4], device="cuda"))
        assert whole.tolist() == [0, 0]
    assert whole.tolist() == [3, 4]
    assert report.clean and "TDL205" in report.notes[0]


def test_safe_copies_hold_their_data() -> None:
    with rehearse("cuda", poison=True) as report:
        device = torch.tensor([1.0, 2.0], device="cuda")
        assert device.cpu().tolist() == [1.0, 2.0]
        assert torch.empty(2).copy_(device, non_blocking=True).tolist() == [1.0, 2.0]  # pageable: the host waits
        assert torch.ones(2).pin_memory().to("cuda", non_blocking=True).sum().item() == 2
    assert report.notes == []
    assert [sync.kind for sync in report.syncs] == ["device-to-host copy", "device-to-host copy", "_local_scalar_dense"]


def test_without_poison_the_copy_is_noted_only() -> None:
    with rehearse("cuda") as report:
        assert to_cpu(torch.ones(2, device="cuda")).tolist() == [1.0, 1.0]
    assert len(report.notes) == 1 and report.syncs == []
