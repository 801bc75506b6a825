import random

import numpy as np
import pytest
import torch

from devlint.runtime import Mean, rehearse, seed_everything
from devlint.runtime.seeding import random_state, set_random_state


def test_the_mean_is_over_all_elements() -> None:
    mean = Mean()
    assert mean.compute() != mean.compute()  # NaN
    mean.update(torch.tensor(2.0), weight=3)
    mean.update(torch.tensor([[1.0, 4.0], [7.0, 8.0]]))
    mean.update(5)
    mean.update(torch.tensor([True, False]))
    mean.update(torch.tensor(9), weight=0.5)
    assert mean.compute() == pytest.approx((6 + 20 + 5 + 1 + 4.5) / (3 + 4 + 1 + 2 + 0.5))
    other = Mean()
    other.load_state_dict(mean.state_dict())
    other.update(torch.tensor(1.0))
    mean.update(torch.tensor(1.0))
    assert other.compute() == mean.compute()
    mean.reset()
    mean.update(torch.ones(3, dtype=torch.bfloat16, requires_grad=True))
    assert mean.compute() == 1.0


def test_many_small_values_are_not_lost() -> None:
    mean = Mean()
    mean.update(torch.full((2**20,), 0.1, dtype=torch.float16))
    for _ in range(1000):
        mean.update(torch.tensor(0.1), weight=2**20)
    assert mean.compute() == pytest.approx(0.1, rel=1e-3)


def test_only_compute_waits() -> None:
    with rehearse("cuda") as report:
        mean = Mean()
        for _ in range(5):
            mean.update(torch.ones(4, device="cuda"))
            mean.update(torch.ones((), device="cuda"), weight=2)
        assert report.syncs == []
        assert mean.compute() == 1.0
        assert sum(sync.count for sync in report.syncs) == 1


def test_bad_values() -> None:
    mean = Mean()
    with pytest.raises(TypeError, match="weight is a tensor"):
        mean.update(torch.ones(()), weight=torch.ones(()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="complex64"):
        mean.update(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="weight is -1"):
        mean.update(1.0, weight=-1)


def draw() -> tuple[object, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        torch.rand(2).tolist(),
    )


def test_seeding_repeats_and_states_return() -> None:
    seed_everything(3)
    first = draw()
    seed_everything(3)
    assert draw() == first
    state = random_state(torch.device("cpu"))
    second = draw()
    assert second != first
    set_random_state(state, torch.device("cpu"))
    assert draw() == second


def test_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    try:
        seed_everything(1, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("seed", "kind"), [(-1, ValueError), (2**32, ValueError), (1.0, TypeError), (True, TypeError)])
def test_bad_seeds(seed: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="seed is"):
        seed_everything(seed)
