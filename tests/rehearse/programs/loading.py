"""Loaders, workers, pinned memory and transfers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split

D = "cuda"


class Rows(Dataset):
    """Host rows, moved to ``device`` on the way out if one is given."""

    def __init__(self, device=None):
        self.device = device

    def __len__(self):
        return 8

    def __getitem__(self, index):
        row = torch.full((3,), float(index))
        return row if self.device is None else row.to(self.device)


class Stream(IterableDataset):
    """A stream of host rows."""

    def __iter__(self):
        for index in range(4):
            yield torch.full((3,), float(index))


def device_rows_in_the_main_process():
    for rows in DataLoader(Rows(D), batch_size=4):
        assert rows.is_cuda


def device_rows_in_workers():
    for _ in DataLoader(Rows(D), batch_size=4, num_workers=2):  # raises RuntimeError: Cannot re-initialize CUDA
        pass


def dataset_holds_device_tensors_in_workers():
    data = TensorDataset(torch.randn(8, 3, device=D))
    for _ in DataLoader(data, batch_size=4, num_workers=1):  # raises RuntimeError
        pass


def dataset_holds_device_tensors():
    data = TensorDataset(torch.randn(8, 3).to(D), torch.zeros(8, dtype=torch.long, device=D))
    for rows, labels in DataLoader(data, batch_size=4, shuffle=True):
        assert rows.is_cuda and labels.is_cuda


def device_batches_pinned():
    for _ in DataLoader(Rows(D), batch_size=4, pin_memory=True):  # raises RuntimeError: only dense CPU tensors can be
        pass


def collate_moves_in_workers():
    def collate(rows):
        return torch.stack(rows).cuda()

    for _ in DataLoader(Rows(), batch_size=4, num_workers=1, collate_fn=collate):  # raises RuntimeError: re-initialize
        pass


def collate_moves_here():
    for rows in DataLoader(Rows(), batch_size=4, collate_fn=lambda rows: torch.stack(rows).to(D)):
        assert rows.is_cuda


def worker_starts_on_the_gpu():
    def start(worker):
        torch.zeros(1, device=D)

    for _ in DataLoader(Rows(), num_workers=1, worker_init_fn=start):  # raises RuntimeError: re-initialize
        pass


def worker_only_asks():
    def start(worker):
        assert torch.utils.data.get_worker_info().id == worker

    for rows in DataLoader(Rows(), num_workers=2, worker_init_fn=start, persistent_workers=True):
        assert not rows.is_cuda


def stream_of_rows():
    for rows in DataLoader(Stream(), batch_size=2, num_workers=1, pin_memory=True):
        assert rows.is_pinned()
        rows.to(D, non_blocking=True) + 1


def batch_forgotten_on_the_host():
    layer = nn.Linear(3, 2).to(D)
    for rows in DataLoader(Rows(), batch_size=4, pin_memory=True):
        layer(rows)  # raises RuntimeError: same device


def nested_batch_half_moved():
    layer = nn.Linear(3, 2).to(D)
    data = [{"x": torch.randn(3), "y": {"t": torch.zeros(2)}} for _ in range(4)]
    for batch in DataLoader(data, batch_size=2):
        batch = {name: value.to(D) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
        loss = layer(batch["x"]) - batch["y"]["t"]  # raises RuntimeError: at least two devices
        loss.sum()


def generator_of_the_gpu_shuffles():
    loader = DataLoader(Rows(), shuffle=True, generator=torch.Generator(device=D))
    for _ in loader:  # raises RuntimeError: Expected a 'cpu' device type for generator but found 'cuda'
        pass


def generator_of_the_gpu_splits():
    random_split(Rows(), [4, 4], generator=torch.Generator(device=D))  # raises RuntimeError: Expected a 'cpu'


def generator_of_the_gpu_draws():
    generator = torch.Generator(device=D).manual_seed(1)
    torch.rand(2, device=D, generator=generator)
    torch.randperm(4, device=D, generator=generator)
    torch.empty(3, device=D).uniform_(generator=generator)
    torch.multinomial(torch.ones(4, device=D), 2, True, generator=generator)
    generator.set_state(generator.get_state())
    assert generator.device.type == "cuda" and generator.initial_seed() == 1


def host_generator_for_a_device_draw():
    generator = torch.Generator().manual_seed(1)
    torch.multinomial(torch.ones(4, device=D), 2, generator=generator)  # raises RuntimeError: Expected a 'cuda'


def host_generator_initialises_a_device_weight():
    weight = torch.empty(3, 3, device=D)
    nn.init.normal_(weight, generator=torch.Generator())  # raises RuntimeError: Expected a 'cuda'


def device_generator_without_a_device():
    torch.rand(3, generator=torch.Generator(device=D))  # raises RuntimeError: Expected a 'cpu'


def dropout_noise_like():
    x = torch.randn(3, device=D)
    x + torch.randn_like(x) + torch.rand(3, device=x.device)


def noise_of_the_wrong_place():
    x = torch.randn(3, device=D)
    x + torch.randn(x.size())  # raises RuntimeError: at least two devices


def pinned_by_hand():
    x = torch.randn(4, 3).pin_memory()
    assert x.is_pinned() and not torch.randn(2).is_pinned()
    y = x.to(D, non_blocking=True)
    assert not y.is_pinned()
    y.sum()


def pinned_empty_buffer():
    buffer = torch.empty(4, 3, pin_memory=True)
    buffer.copy_(torch.randn(4, 3))
    assert buffer.is_pinned()
    buffer.cuda(non_blocking=True)


def device_memory_is_not_pinned():
    torch.empty(3, device=D, pin_memory=True)  # raises RuntimeError: Only dense CPU tensors can be pinned


def pinned_once_more():
    torch.randn(3).to(D).pin_memory()  # raises RuntimeError: cannot pin 'torch.cuda.FloatTensor'


def prefetched_on_a_stream():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.randn(3).pin_memory().to(D, non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    x + 1


def copied_back_without_waiting():
    host = torch.empty(3, pin_memory=True)
    host.copy_(torch.randn(3, device=D), non_blocking=True)
    torch.cuda.synchronize()  # syncs


def moved_and_used_by_name_only():
    x, y = torch.randn(3), torch.randn(3)
    for tensor in (x, y):
        tensor = tensor.to(D)
    layer = nn.Linear(3, 2).to(D)
    layer(x)  # raises RuntimeError: same device


def moved_like_another():
    x = torch.randn(3, device=D)
    y = torch.randn(3).to(x)
    z = torch.arange(3).type_as(x)
    assert (x + y + z).is_cuda


def moved_by_a_map():
    batch = {"x": torch.randn(3), "ids": [torch.ones(2), torch.zeros(2)]}
    moved = torch.utils._pytree.tree_map(lambda leaf: leaf.to(D), batch)
    assert moved["ids"][1].is_cuda
