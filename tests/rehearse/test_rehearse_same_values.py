"""A rehearsed run computes what the CPU computes, bit for bit, and leaves torch as it was."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from devlint.runtime._rehearse import rehearse  # noqa: E402


def train(device: str, optimizer: str) -> list["torch.Tensor"]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 4)
    ).to(device)
    chosen = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    for _ in range(3):
        images, labels = torch.randn(5, 1, 8, 8).to(device), torch.randint(0, 4, (5,)).to(device)
        chosen.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        chosen.step()
    return [tensor.detach().cpu() for p in model.parameters() for tensor in (p, p.grad)]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_values_and_gradients(optimizer: str) -> None:
    plain = train("cpu", optimizer)
    with rehearse("cuda") as report:
        rehearsed = train("cuda", optimizer)
    assert report.clean and report.peak_bytes > 0
    assert all(torch.equal(a, b) for a, b in zip(plain, rehearsed, strict=True))


def test_torch_is_put_back() -> None:
    before = dict(vars(torch.Tensor)), dict(vars(torch.cuda)), torch.Generator, torch.compile
    with rehearse("cuda"):
        assert torch.cuda.is_available()
    assert (dict(vars(torch.Tensor)), dict(vars(torch.cuda)), torch.Generator, torch.compile) == before
    assert not torch.cuda.is_available()


def test_rehearsals_do_not_nest() -> None:
    with rehearse("cuda"), pytest.raises(RuntimeError, match="don't nest"), rehearse("cuda"):
        pass
    with rehearse("cuda"):
        assert torch.ones(1, device="cuda").is_cuda


@pytest.mark.parametrize(("device", "count"), [("cpu", 1), ("cuda", 0), ("cuda", True)])
def test_bad_arguments(device: str, count: int) -> None:
    with pytest.raises(ValueError), rehearse(device, count):
        pass
