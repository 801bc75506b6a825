from typing import Any

import numpy as np
import pytest
import torch
from shapes import Point
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

from devlint.runtime import DeviceUnavailableError, PreloadedDataset, rehearse
from devlint.runtime import preload as preload_module
from devlint.runtime.preload import free_bytes


class Samples(Dataset[Any]):
    def __init__(self, *samples: Any) -> None:
        self.samples = samples
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return self.samples[index]


def test_samples_are_read_once_and_live_on_the_device() -> None:
    with rehearse():
        source = Samples(*((torch.tensor([float(i)]), i) for i in range(4)))
        data = PreloadedDataset(source, "cuda")
        assert source.read == [0, 1, 2, 3]
        assert len(data) == 4
        x, y = data[2]
        assert (x.device.type, y.device.type, x.tolist(), y.item()) == ("cuda", "cuda", [2.0], 2)
        assert data.nbytes == 4 * (4 + 8)
        assert data[-1][1].item() == 3


def test_batches_need_no_collation() -> None:
    data = PreloadedDataset(TensorDataset(torch.arange(10.0), torch.arange(10)), "cpu")
    assert data[[3, 1]][1].tolist() == [3, 1]
    assert data[torch.tensor([0, 2])][1].tolist() == [0, 2]
    assert data[2:4][0].tolist() == [2.0, 3.0]
    assert data[[]][0].shape == (0,)
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(SequentialSampler(data), 4, drop_last=False))
    assert [batch[1].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch[1].tolist() for batch in DataLoader(data, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_numbers_have_the_dtypes_of_collation() -> None:
    samples = [{"i": 1, "f": 0.5, "b": True, "a": np.ones(2, dtype=np.int16)}] * 2
    plain = next(iter(DataLoader(samples, 2)))  # type: ignore[arg-type]
    ours = PreloadedDataset(samples, "cpu")[[0, 1]]
    assert {key: (value.dtype, value.shape) for key, value in ours.items()} == {
        key: (value.dtype, value.shape) for key, value in plain.items()
    }


@pytest.mark.parametrize("sample", [torch.ones(2), [torch.ones(2)], Point(torch.ones(2), torch.zeros(1))])
def test_types_are_kept(sample: Any) -> None:
    data = PreloadedDataset([sample, sample], "meta")
    assert type(data[0]) is type(sample)
    assert type(data[[0, 1]]) is type(sample)


def test_samples_of_different_shapes_come_one_by_one() -> None:
    data = PreloadedDataset([(torch.ones(2), "a"), (torch.ones(3), "b")], "meta")
    assert data[1][0].shape == (3,)
    assert data[1][0].device.type == "meta"
    assert data[1][1] == "b"
    with pytest.raises(TypeError, match="one by one"):
        data[[0, 1]]


def test_past_the_end_is_an_index_error() -> None:
    data = PreloadedDataset([torch.ones(1)], "cpu")
    for index in (1, -2):
        with pytest.raises(IndexError, match=f"sample {index} of 1"):
            data[index]
    assert len(list(data)) == 1


def test_an_empty_dataset_is_fine() -> None:
    assert len(PreloadedDataset([], "cpu")) == 0


def test_what_does_not_fit_is_told_before_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload_module, "free_bytes", lambda device: 3000)
    source = Samples(*(torch.zeros(256) for _ in range(4)))
    with pytest.raises(
        torch.cuda.OutOfMemoryError, match=r"4 samples need about 4.0 KiB on cpu, where 2.9 KiB are free.*Dev"
    ):
        PreloadedDataset(source, "cpu")
    assert source.read == [0]


def test_later_samples_may_be_larger_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload_module, "free_bytes", lambda device: 3000)
    with pytest.raises(RuntimeError, match=r"2 samples need 4.0 KiB"):
        PreloadedDataset([torch.zeros(1), torch.zeros(1023)], "cpu")


def test_free_memory_is_known_for_the_cpu() -> None:
    free = free_bytes(torch.device("cpu"))
    assert free is not None and free > 1 << 20
    assert free_bytes(torch.device("meta")) is None


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"__len__ and __getitem__, which .*iterator lacks"):
        PreloadedDataset(iter([]), "cpu")
    with pytest.raises(DeviceUnavailableError, match="build without CUDA"):
        PreloadedDataset([], "cuda")
