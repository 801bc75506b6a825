"""TrainStep against a loop written by hand, bit for bit, and what it answers to bad input."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from devlint.runtime import DeviceMismatchError, Precision, TrainStep, nonfinite, precision, rehearse

Batch = tuple[torch.Tensor, torch.Tensor]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def data(count: int = 7, bad: int | None = None) -> list[Batch]:
    generator = torch.Generator().manual_seed(2)
    batches = [
        (torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)) for _ in range(count)
    ]
    if bad is not None:
        batches[bad][0][0, 0] = float("inf")
    return batches


def scaler(name: str) -> torch.amp.GradScaler | None:
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2) if name == "fp16" else None


def decay(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)


def by_hand(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch], name: str, accumulate: int, clip: bool
) -> tuple[list[torch.Tensor], int, Any]:
    """The loop as a careful person writes it for this one case."""
    scheduler, scale = decay(optimizer), scaler(name)
    losses, skipped = [], 0
    for start in range(0, len(batches), accumulate):
        window = batches[start : start + accumulate]
        optimizer.zero_grad()
        for inputs, targets in window:
            with torch.autocast("cpu", dtype=DTYPES[name], enabled=name != "fp32"):
                loss = F.cross_entropy(model(inputs), targets)
            losses.append(loss.detach())
            divided = loss / accumulate
            (divided if scale is None else scale.scale(divided)).backward()
        parameters = list(model.parameters())
        if scale is not None:
            scale.unscale_(optimizer)
        for parameter in parameters:
            parameter.grad.mul_(accumulate / len(window))
        if clip:
            nn.utils.clip_grad_norm_(parameters, 0.5)
        if scale is not None:
            before = scale.get_scale()
            scale.step(optimizer)
            scale.update()
            stepped = scale.get_scale() >= before
        else:
            stepped = all(bool(parameter.grad.isfinite().all()) for parameter in parameters)
            if stepped:
                optimizer.step()
        if stepped:
            scheduler.step()
        skipped += not stepped
    return losses, skipped, scheduler


def same(first: Any, second: Any) -> bool:
    """Bit for bit, NaN included, through dicts and lists."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first.nan_to_num(7), second.nan_to_num(7))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)


@pytest.mark.parametrize("bad", [None, 3, 6])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", DTYPES)
def test_equals_the_loop_written_by_hand(name: str, kind: str, accumulate: int, clip: bool, bad: int | None) -> None:
    batches = data(bad=bad)
    ours, theirs = network(), network()
    optimizers = [OPTIMIZERS[kind](model.parameters()) for model in (ours, theirs)]
    step = TrainStep(
        ours,
        optimizers[0],
        F.cross_entropy,
        precision=Precision(DTYPES[name], torch.device("cpu"), scaler(name)),
        accumulate=accumulate,
        clip_norm=0.5 if clip else None,
        scheduler=decay(optimizers[0]),
    )
    torch.manual_seed(3)
    losses = [step(batch).loss for batch in batches]
    assert step.flush() is (accumulate == 3 and bad != 6)
    torch.manual_seed(3)
    expected, skipped, scheduler = by_hand(theirs, optimizers[1], batches, name, accumulate, clip)
    assert same(losses, expected)
    assert same(ours.state_dict(), theirs.state_dict())
    assert same(optimizers[0].state_dict(), optimizers[1].state_dict())
    assert step.skipped == skipped and skipped >= (bad is not None)
    assert step.steps == -(-7 // accumulate) - skipped
    assert same(step.scheduler.state_dict(), scheduler.state_dict())


def test_the_last_batch_can_close_the_window() -> None:
    flushed, closed = network(), network()
    for model in (flushed, closed):
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        step = TrainStep(model, optimizer, F.cross_entropy, accumulate=4)
        torch.manual_seed(3)
        results = [step(batch, last=model is closed and index == 5) for index, batch in enumerate(data(6))]
        assert [result.stepped for result in results] == [
            index == 3 or (model is closed and index == 5) for index in range(6)
        ]
        assert step.flush() is (model is flushed)
        assert (step.steps, step.pending) == (2, 0)
    assert same(flushed.state_dict(), closed.state_dict())


def test_a_result_tells_what_happened() -> None:
    model = network()
    step = TrainStep(model, OPTIMIZERS["sgd"](model.parameters()), F.cross_entropy, clip_norm=0.01)
    result = step(data(1)[0])
    assert result.stepped and result.loss.shape == () and not result.loss.requires_grad
    assert result.outputs.shape == (8, 3) and not result.outputs.requires_grad
    assert torch.equal(result.targets, data(1)[0][1])
    assert float(result.grad_norm) > 0.01 and bool(result.finite)
    clipped = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    torch.testing.assert_close(clipped, torch.tensor(0.01), rtol=1e-3, atol=0)


def test_ignore_lets_them_through_and_raise_names_them() -> None:
    batch = data(1, bad=0)[0]
    model = network()
    before = copy.deepcopy(model.state_dict())
    step = TrainStep(model, OPTIMIZERS["sgd"](model.parameters()), F.cross_entropy, on_nonfinite="raise")
    with pytest.raises(
        FloatingPointError, match=r"step 0: gradients are not finite: .*0\.weight.*; nothing was changed"
    ):
        step(batch)
    assert torch.equal(model[0].weight, before["0.weight"])
    assert not model[0].weight.grad.isfinite().all()
    step = TrainStep(model, OPTIMIZERS["sgd"](model.parameters()), F.cross_entropy, on_nonfinite="ignore")
    assert step(batch).stepped
    assert not model[0].weight.isfinite().all()


def test_raise_with_float16_is_about_the_loss() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    small = Precision(torch.float16, torch.device("cpu"), torch.amp.GradScaler("cpu", init_scale=2.0**40))
    step = TrainStep(model, optimizer, F.cross_entropy, precision=small, on_nonfinite="raise")
    assert not step(data(1)[0]).stepped  # the scale is too large: an overflow that the scaler deals with
    with pytest.raises(FloatingPointError, match=r"step 0: the loss is (nan|inf)"):
        step(data(1, bad=0)[0])


@pytest.mark.parametrize("bad", [None, 1])
def test_a_closure_optimizer(bad: int | None) -> None:
    batches = data(3, bad=bad)
    ours, theirs = nn.Linear(6, 3), nn.Linear(6, 3)
    theirs.load_state_dict(ours.state_dict())
    step = TrainStep(ours, torch.optim.LBFGS(ours.parameters(), max_iter=4), F.cross_entropy, clip_norm=5.0)
    optimizer = torch.optim.LBFGS(theirs.parameters(), max_iter=4)
    for index, (inputs, targets) in enumerate(batches):
        result = step((inputs, targets))
        assert result.stepped is (index != bad)

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(theirs(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 5.0)
            return loss

        if index != bad:
            first = optimizer.step(closure)
            assert torch.equal(result.loss, first.detach())
    assert same(ours.state_dict(), theirs.state_dict())
    assert step.steps == (3 if bad is None else 2)


def test_a_batch_of_any_form() -> None:
    model = nn.Linear(6, 3)
    step = TrainStep(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        F.cross_entropy,
        forward=lambda model, batch: (model(batch["x"]), batch["y"]),
    )
    inputs, targets = data(1)[0]
    assert step({"x": inputs, "y": targets, "name": "a"}).stepped
    plain = TrainStep(model, step.optimizer, F.cross_entropy)
    with pytest.raises(TypeError, match=r"the batch is a dict of 2, not a pair.*forward="):
        plain({"x": inputs, "y": targets})
    with pytest.raises(TypeError, match="the batch is a tuple of 3"):
        plain((inputs, targets, targets))
    with pytest.raises(TypeError, match="the batch is a object"):
        plain(object())


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize(("name", "syncs"), [("fp32", 0), ("bf16", 0), ("fp16", 1)])
def test_how_often_the_host_waits_on_cuda(name: str, syncs: int, clip: float | None, kind: str) -> None:
    batch = data(1)[0]
    with rehearse("cuda") as report:
        model = nn.Linear(6, 3).to("cuda")
        optimizer = OPTIMIZERS[kind](model.parameters())
        step = TrainStep(
            model, optimizer, F.cross_entropy, precision=name, accumulate=2, clip_norm=clip, scheduler=decay(optimizer)
        )
        for _ in range(8):
            step(batch)
    assert report.clean and report.steps == 4
    assert report.syncs_per_step() == syncs


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_bad_gradients_are_kept_out_without_waiting(kind: str) -> None:
    batches = [(inputs.clone(), targets) for inputs, targets in data(3, bad=1)]
    with rehearse("cuda") as report:
        model = nn.Linear(6, 3).to("cuda")
        step = TrainStep(model, OPTIMIZERS[kind](model.parameters()), F.cross_entropy, precision="fp32")
        step(batches[0])
        after_first = {name: value.clone() for name, value in model.state_dict().items()}
        result = step(batches[1])
        after_second = {name: value.clone() for name, value in model.state_dict().items()}
        step(batches[2])
        waits = report.syncs_per_step()
        assert waits == 0
        assert not bool(result.finite) and step.skipped == 1
        final = {name: value.cpu() for name, value in model.state_dict().items()}
        unchanged = [bool(torch.equal(after_first[name].cpu(), after_second[name].cpu())) for name in after_first]
    assert all(value.isfinite().all() for value in final.values())
    assert all(unchanged) is (kind == "fused")  # the others make the step, with zero gradients


def test_large_gradients_are_finite() -> None:
    large = torch.full((4,), 3e38)
    assert bool(nonfinite.are_finite([torch.zeros(0), large, torch.ones(2, dtype=torch.float16) * 60000]))
    assert bool(nonfinite.are_finite([torch.ones(2, dtype=torch.complex64)]))
    for bad in (float("inf"), -float("inf"), float("nan")):
        large[2] = bad
        assert not bool(nonfinite.are_finite([torch.ones(3), large]))
        assert not bool(nonfinite.are_finite([large, large]))


def test_sparse_gradients() -> None:
    for name, waits in (("cpu", 0), ("cuda", 1)):
        with rehearse("cuda") as report:
            model = nn.EmbeddingBag(5, 3, sparse=True).to(name)
            step = make(model=model, precision="fp32", loss_fn=lambda outputs, targets: (outputs * targets).sum())
            rows = torch.tensor([[1, 2], [2, 3]])
            assert step((rows, torch.ones(2, 3))).stepped
            assert report.syncs_per_step() == waits
            assert not step((rows, torch.tensor(float("inf")))).stepped
            assert bool(model.weight.isfinite().all())


def make(**options: Any) -> TrainStep:
    model = options.pop("model", None) or nn.Linear(6, 3)
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainStep(model, optimizer, options.pop("loss_fn", F.cross_entropy), **options)


def lbfgs() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(6, 3)
    return model, torch.optim.LBFGS(model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate is 0"),
        ({"accumulate": 1.5}, "accumulate is 1.5"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0"),
        ({"clip_norm": float("nan")}, "clip_norm is nan"),
        ({"on_nonfinite": "drop"}, "on_nonfinite is 'drop'; it must be one of skip, raise, ignore"),
        ({"precision": "tf32"}, "name is 'tf32'; it must be one of auto, fp32, bf16, fp16"),
        ({"model": nn.Linear(6, 3).half(), "precision": "fp16"}, "the parameters are float16"),
        (
            dict(zip(("model", "optimizer"), lbfgs(), strict=True)) | {"precision": "fp16"},
            "LBFGS needs a closure, which a G",
        ),
        (
            dict(zip(("model", "optimizer"), lbfgs(), strict=True)) | {"accumulate": 2},
            "LBFGS needs a closure, which is run",
        ),
        ({"scheduler": decay(torch.optim.SGD(nn.Linear(2, 2).parameters()))}, "made for another optimizer"),
        (
            {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(nn.Linear(2, 2).parameters()))},
            "ReduceLROnPlateau steps on a metric",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_bad_losses() -> None:
    batch = data(1)[0]
    with pytest.raises(
        ValueError, match=r"a tensor of shape \(8,\); it must have one element: reduce it, loss.mean\(\)"
    ):
        make(loss_fn=lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="none"))(batch)
    with pytest.raises(TypeError, match="loss_fn returned float; it must return a tensor"):
        make(loss_fn=lambda outputs, targets: 1.0)(batch)
    with pytest.raises(ValueError, match="no trainable parameter takes part in the loss"):
        make(loss_fn=lambda outputs, targets: F.cross_entropy(outputs.detach(), targets))(batch)
    other = torch.optim.SGD(nn.Linear(6, 3).parameters(), lr=0.1)
    for name in DTYPES:
        with pytest.raises(ValueError, match="no parameter of the optimizer got a gradient"):
            make(optimizer=other, precision=name)(batch)
    assert make(loss_fn=lambda outputs, targets: F.cross_entropy(outputs, targets)[None])(batch).loss.shape == ()


def test_the_device_is_the_models() -> None:
    with pytest.raises(
        DeviceMismatchError, match=r"device is meta, but the model is on cpu; move it, model.to\('meta'\)"
    ):
        make(device="meta")
    with rehearse("cuda", count=2):
        model = nn.Linear(6, 3).to("cuda:1")
        assert make(model=model).device == torch.device("cuda:1")
        assert make(model=model, device="cuda").device == torch.device("cuda:1")
        with pytest.raises(DeviceMismatchError, match="device is cuda:0, but the model is on cuda:1"):
            make(model=model, device="cuda:0")


def test_precision() -> None:
    chosen = [precision(name, "cpu") for name in ("auto", "fp32", "bf16", "fp16")]
    assert [each.name for each in chosen] == ["fp32", "fp32", "bf16", "fp16"]
    assert [each.scaler is not None for each in chosen] == [False, False, False, True]
    product = torch.ones(2, 2)
    for each, expected in itertools.zip_longest(chosen, (torch.float32, torch.float32, torch.bfloat16, torch.float16)):
        with each.autocast():
            assert (product @ product).dtype is expected
    cpu = torch.device("cpu")
    with pytest.raises(ValueError, match=r"a GradScaler with torch\.bfloat16, whose range needs no loss scaling"):
        Precision(torch.bfloat16, cpu, torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match="float16 without an enabled GradScaler"):
        Precision(torch.float16, cpu, torch.amp.GradScaler("cpu", enabled=False))
    with pytest.raises(ValueError, match=r"dtype is torch.float64; it must be"):
        Precision(torch.float64, cpu)


def test_state_goes_from_one_precision_to_another() -> None:
    batches = data(6)
    plain, scaled = make(precision="fp32"), make(precision="fp16")
    plain(batches[0])
    with pytest.warns(UserWarning, match="saved without loss scaling: the scale starts anew"):
        scaled.load_state_dict(plain.state_dict())
    assert scaled.steps == 1
    scaled(batches[1])
    plain.load_state_dict(scaled.state_dict())
    assert same(plain.model.state_dict(), scaled.model.state_dict())
    half = make(accumulate=2)
    half(batches[0])
    with pytest.raises(RuntimeError, match=r"1 of 2 batches are accumulated.*flush"):
        half.state_dict()
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = make(model=model, optimizer=optimizer, scheduler=decay(optimizer))
    with pytest.raises(ValueError, match="the state has no scheduler, this TrainStep has one"):
        scheduled.load_state_dict(plain.state_dict())
