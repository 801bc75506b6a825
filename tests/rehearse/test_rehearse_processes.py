"""Several processes and several devices: DDP, DataParallel, spawned children, loader workers."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from devlint.runtime._rehearse import rehearse  # noqa: E402
from devlint.runtime._rehearse.cli import main  # noqa: E402

DDP = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device_count = torch.cuda.device_count()  # in the children's main module too

def train(rank, store):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    assert device_count == 2
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()  # DDP moves the input
        optimizer.step()
    total = torch.full((2,), rank + 1.0, device=rank)
    dist.all_reduce(total)
    weights = [torch.empty(4, 4, device=rank) for _ in range(2)]
    dist.all_gather(weights, model.module[0].weight.detach())
    assert total.is_cuda and total.tolist() == [3.0, 3.0]
    assert weights[0].is_cuda and torch.equal(weights[0], weights[1])
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, (sys.argv[1],), nprocs=2)
"""

CHILDREN = """
import torch, torch.multiprocessing as mp
from torch.utils.data import DataLoader

class Data(torch.utils.data.Dataset):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.full((2,), float(index), device=self.device)

def child(model, queue):
    batch = queue.get()
    assert batch.is_cuda and next(model.parameters()).is_cuda
    model(batch)
    model(batch.cpu())

if __name__ == "__main__":
    (batch,) = DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert batch.is_cuda and batch.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    context = mp.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(torch.nn.Linear(2, 2).cuda(), queue))
    process.start()
    queue.put(batch)
    process.join()
"""


def run(tmp_path: Path, text: str, *arguments: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(text)
    return main([*arguments[:-1], str(path), arguments[-1]] if arguments else [str(path)])


def test_ddp_over_two_spawned_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, DDP, "--count", "2", str(tmp_path / "store")) == 0
    out = capsys.readouterr().out
    assert "no device error" in out and "4 optimizer steps" in out
    assert "note: nccl: run over gloo" in out and "2 spawned processes rehearsed too" in out


def test_spawned_children_are_rehearsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parent ends well, as it would with CUDA; the child's error is in the report, at the child's line."""
    assert run(tmp_path, CHILDREN) == 1
    out = capsys.readouterr().out
    line = CHILDREN.splitlines().index("    model(batch.cpu())") + 1
    assert f"program.py:{line}: TDL" in out and "2 spawned processes rehearsed too" in out


def test_forked_worker_may_not_use_the_device() -> None:
    class Data(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> "torch.Tensor":
            return torch.ones(1, device="cuda")

    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork")
    with rehearse("cuda"), pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        next(iter(loader))


def test_data_parallel_over_two_devices() -> None:
    def step(model: nn.Module, device: str) -> list["torch.Tensor"]:
        inputs = torch.arange(12.0, device=device).reshape(6, 2)
        model(inputs).square().sum().backward()
        return [parameter.grad.cpu() for parameter in model.parameters()]

    torch.manual_seed(0)
    layer = nn.Linear(2, 3)
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    plain = step(layer, "cpu")
    with rehearse("cuda", 2) as report:
        model = nn.DataParallel(nn.Linear(2, 3)).cuda()
        model.module.load_state_dict(state)
        split = step(model, "cuda")
        outputs = model(torch.ones(4, 2))  # scatters tensors of the host too
        assert outputs.device == torch.device("cuda", 0)
    assert report.clean and any(transfer.direction == "D2D" for transfer in report.transfers)
    for left, right in zip(plain, split, strict=True):
        torch.testing.assert_close(left, right)


def test_data_parallel_left_on_the_host() -> None:
    text = "module must have its parameters and buffers on device cuda:0"
    with pytest.raises(RuntimeError, match=text), rehearse("cuda", 2) as report:
        nn.DataParallel(nn.Linear(2, 3), device_ids=[0, 1])(torch.ones(4, 2))
    assert not report.clean


def test_device_index_scope() -> None:
    scope = getattr(getattr(torch, "accelerator", None), "device_index", None)
    with rehearse("cuda", 2):
        with scope(1) if scope is not None else torch.cuda.device(1):
            assert torch.ones(1, device="cuda").device.index == 1
        assert torch.ones(1, device="cuda").device.index == 0
        assert torch.device(1) == torch.device("cuda", 1)


def test_device_given_by_its_ordinal() -> None:
    with rehearse("cuda", 2) as report:
        wanted = torch.device("cuda", 1)
        host = torch.ones(2)
        moved = [host.to(1), host.to(device=1), host.cuda(1), torch.ones(2, device=1), host.to(torch.device(1))]
        assert [tensor.device for tensor in moved] == [wanted] * len(moved)
        for model in (nn.Linear(2, 2).to(1), nn.Linear(2, 2).to(device=1), nn.Linear(2, 2).cuda(1)):
            assert model.weight.device == wanted
        with pytest.raises(getattr(torch, "AcceleratorError", RuntimeError), match="invalid device ordinal"):
            host.to(2)
    assert len(report.mismatches) == 1
