import gc
import multiprocessing
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from devlint.runtime import DeviceLoader, DeviceMismatchError, DeviceUnavailableError, make_loader, rehearse
from devlint.runtime import loader as loader_module
from devlint.runtime.cores import container_quota, usable_cores


def numbers(count: int = 20) -> TensorDataset:
    return TensorDataset(torch.arange(count), torch.arange(count) * 2)


class Aware(Dataset[Any]):
    """The article's dataset: it moves each sample."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.zeros(2).to("cuda"), "y": index}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(4))


pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on fewer than 4 cores


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "usable_cores", lambda: 4)


def test_workers_come_from_the_cores() -> None:
    loader = make_loader(numbers(), batch_size=5)
    assert (loader.num_workers, loader.persistent_workers, loader.pin_memory) == (3, True, False)


def test_without_workers_their_options_are_left_out() -> None:
    loader = make_loader(numbers(), num_workers=0, persistent_workers=True, prefetch_factor=4)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (0, False, None)
    assert len(list(loader)) == 20


def test_what_the_caller_passes_wins() -> None:
    with rehearse():
        loader = make_loader(numbers(), num_workers=2, persistent_workers=False, pin_memory=False, prefetch_factor=7)
    assert (loader.persistent_workers, loader.pin_memory, loader.prefetch_factor) == (False, False, 7)


def test_an_iterable_dataset_gets_one_worker() -> None:
    assert make_loader(Stream()).num_workers == 1


@pytest.mark.parametrize(("device", "pinned"), [(None, True), ("cuda", True), ("cpu", False), ("mps", False)])
def test_memory_is_pinned_where_it_helps(device: str | None, pinned: bool) -> None:
    with rehearse():
        assert make_loader(numbers(), device=device, num_workers=0).pin_memory is pinned
    assert make_loader(numbers(), device=device, num_workers=0).pin_memory is False


@pytest.mark.parametrize("workers", [-1, 1.5, "all", True, None])
def test_a_bad_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(ValueError, match="num_workers is"):
        make_loader(numbers(), num_workers=workers)


def test_samples_on_an_accelerator_are_named() -> None:
    with rehearse():
        with pytest.raises(ValueError, match=r"Aware returns tensors .*dataset\[0\]\['x'\] is on cuda:0.*DeviceLoader"):
            make_loader(Aware(), num_workers=2)
        loader = make_loader(Aware())
        assert (loader.num_workers, loader.pin_memory) == (0, False)
        assert make_loader(TensorDataset(torch.zeros(2, device="cuda")), num_workers=0).pin_memory is False


def test_looking_at_a_sample_leaves_the_random_numbers_alone() -> None:
    class Noisy(Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return torch.rand(1) + random.random() + np.random.rand()

    def draw() -> list[float]:
        return [torch.rand(1).item(), random.random(), float(np.random.rand())]

    def seed() -> None:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)

    seed()
    expected = draw()
    seed()
    with rehearse():
        make_loader(Noisy(), num_workers=1)
    assert draw() == expected


def test_a_dataset_that_has_no_sample_0_is_the_loaders_matter() -> None:
    class Keyed(Dataset[Any]):
        def __getitem__(self, key: str) -> Any:
            return {"a": 1}[key]

    with rehearse():
        assert make_loader(Keyed(), num_workers=1, sampler=["a"]).num_workers == 1


class Drawn(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(1).item(), random.random(), float(np.random.rand())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_repeats_order_and_workers(workers: int) -> None:
    def run(seed: int) -> Any:
        if not workers:  # then the draws are this process's
            torch.manual_seed(0), random.seed(0), np.random.seed(0)
        loader = make_loader(Drawn(), num_workers=workers, seed=seed, shuffle=True, batch_size=None)
        return list(loader)

    first = run(1)
    assert first == run(1)
    assert [row[0] for row in first] != [row[0] for row in run(2)]


def test_seed_and_generator_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="both seed and generator"):
        make_loader(numbers(), seed=1, generator=torch.Generator())


def test_cores_are_shared_among_local_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("devlint.runtime.cores.container_quota", lambda _: None)
    for size, expected in (("1", 8), ("4", 2), ("16", 1), ("0", 8), ("x", 8)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", size)
        assert usable_cores() == expected
    monkeypatch.setattr("devlint.runtime.cores.container_quota", lambda _: 2.5)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("250000 100000\n", 2.5), ("", None), ("1 0", None)]
)
def test_container_quotas_are_read(tmp_path: Path, text: str, cores: float | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(text)
    assert container_quota(file) == cores
    assert container_quota(tmp_path / "missing") is None


@pytest.mark.parametrize("prefetch", [0, 1, 3, 50])
@pytest.mark.parametrize("device", ["cuda", "xpu", "cpu", "meta"])
def test_batches_arrive_in_order_and_again(device: str, prefetch: int) -> None:
    plain = [[part.tolist() for part in batch] for batch in DataLoader(numbers(), 6)]
    with rehearse(device if device == "xpu" else "cuda"):
        loader = DeviceLoader(DataLoader(numbers(), 6), device, prefetch=prefetch)
        assert len(loader) == 4
        for _ in range(2):
            got = list(loader)
            assert all(part.device.type == device for batch in got for part in batch)
            if device != "meta":
                assert [[part.tolist() for part in batch] for batch in got] == plain


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_empty_loader_is_fine(device: str) -> None:
    with rehearse():
        assert list(DeviceLoader([], device)) == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_comes_in_its_place(prefetch: int) -> None:
    def batches() -> Iterator[Any]:
        yield torch.zeros(1)
        yield torch.ones(1)
        raise KeyError("third")

    seen = []
    with rehearse(), pytest.raises(KeyError, match="third"):
        for batch in DeviceLoader(batches(), "cuda", prefetch=prefetch):
            seen.append(batch.item())
    assert seen == [0.0, 1.0]


def test_copies_are_ordered_by_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    with rehearse():
        streams = {"side": None}
        event_of = torch.cuda.Stream.record_event
        wait_for = torch.cuda.Stream.wait_event

        def record_event(stream: Any, *args: Any) -> Any:
            log.append("copied")
            streams["side"] = stream
            assert torch.cuda.current_stream() == stream
            return event_of(stream, *args)

        def wait_event(stream: Any, event: Any) -> Any:
            log.append("wait")
            assert stream != streams["side"]
            return wait_for(stream, event)

        monkeypatch.setattr(torch.cuda.Stream, "record_event", record_event)
        monkeypatch.setattr(torch.cuda.Stream, "wait_event", wait_event)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: log.append("keep"))
        batches = [{"x": torch.zeros(1), "y": [torch.zeros(1)]} for _ in range(3)]
        for _ in DeviceLoader(batches, "cuda", prefetch=1):
            log.append("use")
        monkeypatch.undo()
    used = ["wait", "keep", "keep", "use"]
    assert log == ["copied", "copied", *used, "copied", *used, *used]


class Stateful:
    """A loader that can tell where it is."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.position < 5:
            self.position += 1
            yield torch.tensor(self.position)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize(("device", "prefetch"), [("cpu", 1), ("cuda", 0), ("cuda", 2)])
def test_the_state_is_that_of_the_batch_handed_out(device: str, prefetch: int) -> None:
    with rehearse():
        loader = DeviceLoader(Stateful(), device, prefetch=prefetch)
        for batch in loader:
            assert loader.state_dict() == {"position": int(batch)}
            if int(batch) == 3:
                break
        state = loader.state_dict()
        again = DeviceLoader(Stateful(), device, prefetch=prefetch)
        again.load_state_dict(state)
        assert [int(batch) for batch in again] == [4, 5]
        assert again.state_dict() == {"position": 5}


def test_the_epoch_reaches_the_sampler() -> None:
    sampler = DistributedSampler(numbers(), num_replicas=2, rank=0)
    loader = DeviceLoader(DataLoader(numbers(), 4, sampler=sampler), "cpu")
    loader.set_epoch(7)
    assert sampler.epoch == 7
    batched = torch.utils.data.BatchSampler(sampler, 4, drop_last=False)
    DeviceLoader(DataLoader(numbers(), batch_sampler=batched), "cpu").set_epoch(8)
    assert sampler.epoch == 8
    DeviceLoader([], "cpu").set_epoch(1)


def test_other_attributes_are_the_loaders() -> None:
    inner = DataLoader(numbers(), 4)
    loader = DeviceLoader(inner, "cpu")
    assert loader.dataset is inner.dataset
    assert loader.batch_size == 4
    with pytest.raises(AttributeError, match="nonsense"):
        _ = loader.nonsense
    with pytest.raises(TypeError, match="len"):
        len(DeviceLoader(iter([]), "cpu"))
    assert "prefetch=1" in repr(loader)


def test_a_transform_sees_batches_on_the_device_and_skip_is_heeded() -> None:
    batches = [{"x": torch.zeros(1), "path": torch.zeros(1)}]
    with rehearse():
        loader = DeviceLoader(batches, "cuda", skip=("path",), transform=lambda batch: (batch["x"] + 1, batch["path"]))
        ((x, path),) = loader
        assert (x.device.type, x.item(), path.device.type) == ("cuda", 1.0, "cpu")


def test_a_batch_on_another_accelerator_is_refused() -> None:
    with rehearse(count=2):
        batches = [{"x": torch.zeros(1, device="cuda:1")}]
        with pytest.raises(DeviceMismatchError, match=r"batch\['x'\] is on cuda:1 already"):
            list(DeviceLoader(batches, "cuda:0"))
        with pytest.raises(DeviceMismatchError, match="towards cpu"):
            list(DeviceLoader(batches, "cpu"))
        assert len(list(DeviceLoader(batches, "cuda:1"))) == 1


@pytest.mark.parametrize("prefetch", [-1, 1.0, True])
def test_a_bad_prefetch_is_refused(prefetch: Any) -> None:
    with pytest.raises(ValueError, match="prefetch is"):
        DeviceLoader([], "cpu", prefetch=prefetch)


def test_other_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="iterable of batches, not int"):
        DeviceLoader(3, "cpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transform is 3"):
        DeviceLoader([], "cpu", transform=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a device"):
        DeviceLoader([], "gpu")
    with pytest.raises(DeviceUnavailableError, match="build without CUDA"):
        iter(DeviceLoader([], "cuda"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_leaving_midway_leaks_nothing(device: str) -> None:
    batches = [torch.zeros(3) + index for index in range(4)]
    alive: list[Any] = []
    with rehearse():
        for batch in DeviceLoader((batch + 0 for batch in batches), device, prefetch=2):
            alive.append(weakref.ref(batch))
            break
        del batch
        gc.collect()
    assert alive[0]() is None


def test_leaving_midway_ends_the_workers() -> None:
    before = {process.pid for process in multiprocessing.active_children()}
    loader = DeviceLoader(DataLoader(numbers(), 2, num_workers=1), "cpu")
    for _ in loader:
        break
    gc.collect()
    assert {process.pid for process in multiprocessing.active_children()} <= before
