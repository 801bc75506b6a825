"""``torch.device``, the default device, ``torch.cuda``'s state, streams, memory, what can't be rehearsed."""

import warnings

import torch
from torch import nn

D = "cuda"


def devices_compare_as_torch_does():
    x = torch.zeros(1, device=D)
    assert x.device == torch.device("cuda:0") and x.device != torch.device("cuda")
    assert x.device.type == "cuda" and x.device.index == 0 and x.get_device() == 0
    assert str(torch.zeros(1, device=torch.device("cuda", 1)).device) == "cuda:1"
    assert torch.zeros(1).get_device() == -1
    assert {x.device: 1}[torch.device("cuda", 0)] == 1


def devices_by_number():
    assert torch.zeros(1, device=1).device.index == 1
    assert torch.zeros(1).to(1).device.index == 1
    assert torch.zeros(1).cuda(1).device.index == 1
    assert torch.device(1) == torch.device("cuda:1") and isinstance(torch.device("cpu"), torch.device)
    assert nn.Linear(1, 1).to(1).weight.device.index == 1
    assert nn.Linear(1, 1).cuda(1).weight.device.index == 1


def a_gpu_too_many():
    torch.zeros(1).to("cuda:2")  # raises RuntimeError: invalid device ordinal


def a_gpu_too_many_chosen():
    torch.cuda.set_device(4)  # raises RuntimeError: invalid device ordinal


def a_device_that_is_none():
    torch.zeros(1).to("gpu")  # fails RuntimeError: Expected one of cpu, cuda


def current_device_in_a_block():
    with torch.cuda.device(1):
        assert torch.zeros(1, device=D).device.index == 1 and torch.cuda.current_device() == 1
    assert torch.zeros(1, device=D).device.index == 0
    torch.cuda.set_device(1)
    assert torch.zeros(1).cuda().device.index == 1
    torch.cuda.set_device("cuda:0")


def default_device_block():
    with torch.device(D):
        x = torch.tensor([1.0])
        assert x.is_cuda and torch.arange(3).is_cuda and torch.zeros_like(x).is_cuda and nn.Linear(1, 1).weight.is_cuda
        with torch.device("cpu"):
            assert not torch.zeros(1).is_cuda
        assert not torch.zeros(1, device="cpu").is_cuda
        assert torch.get_default_device() == torch.device("cuda:0")
    assert not torch.zeros(1).is_cuda


def default_device_set():
    torch.set_default_device(D)
    try:
        model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
        model(torch.randn(2, 3)).sum().backward()
        torch.from_numpy(torch.ones(3, device="cpu").numpy()) + torch.ones(3)  # raises RuntimeError: two devices
    finally:
        torch.set_default_device(None)


def memory_counts():
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1 << 16, device=D)
    assert torch.cuda.memory_allocated() - before == 4 << 16
    assert torch.cuda.max_memory_allocated() >= 4 << 16
    torch.cuda.reset_peak_memory_stats()
    del x
    assert torch.cuda.memory_allocated() == before
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] >= 0 and stats["active_bytes.all.current"] >= 0
    assert isinstance(torch.cuda.memory_summary(), str)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory


def memory_of_the_second_gpu():
    x = torch.zeros(1 << 16, device="cuda:1")
    assert torch.cuda.memory_allocated(1) >= 4 << 16 > torch.cuda.memory_allocated(0)
    assert torch.cuda.max_memory_allocated("cuda:1") >= 4 << 16
    del x


def streams_and_events():
    first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(first):
        assert torch.cuda.current_stream() == first
        start.record()
        x = torch.randn(3, device=D)
        end.record(first)
    second.wait_event(end)
    second.wait_stream(first)
    with second:
        x * 2
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    end.synchronize()  # syncs
    assert start.elapsed_time(end) >= 0


def generic_streams():
    stream = torch.Stream(device=D)
    event = torch.Event(device=D)
    with stream:
        torch.zeros(1, device=D)
        event.record()
    torch.accelerator.current_stream().wait_stream(stream)
    torch.accelerator.synchronize()  # syncs


def accelerator_names_the_device():
    assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.device_count() == torch.cuda.device_count() == 2
    device = torch.accelerator.current_accelerator()
    torch.zeros(1, device=device) + torch.zeros(1, device=D)


def capabilities():
    assert torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    major, minor = torch.cuda.get_device_capability()
    assert (major, minor) >= (7, 0) and torch.cuda.get_device_properties(0).major == major
    assert torch.cuda.get_device_name(0) and torch.version.cuda
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)


def elapsed_time_of_untimed_events():
    start, end = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    end.record()
    start.elapsed_time(end)  # fails ValueError: enable_timing=True


def storages_know_their_device():
    x = torch.zeros(3, device=D)
    assert x.untyped_storage().device.type == "cuda"
    assert x.untyped_storage().nbytes() == 12
    assert not torch.zeros(3).untyped_storage().is_cuda


def like_and_new():
    x = torch.randn(3, device=D, dtype=torch.float64)
    for made in (torch.empty_like(x), x.new_ones(2), x.new_full((2,), 1), x.new_tensor([1]), torch.randint_like(x, 3)):
        assert made.is_cuda
    assert not torch.ones_like(x, device="cpu").is_cuda
    assert x.new_zeros(2, device="cpu").device.type == "cpu"


def views_and_splits_stay():
    x = torch.randn(4, 6, device=D)
    parts = [x[0], x[:, 1], x.view(-1), x.t(), *x.chunk(2), *x.split([1, 3]), x.real, x.detach(), x.clone(), x.data]
    assert all(part.is_cuda for part in parts)
    assert torch.view_as_complex(x.view(4, 3, 2)).is_cuda


def complex_and_fft():
    x = torch.randn(8, device=D)
    assert torch.fft.rfft(x).is_cuda and torch.fft.irfft(torch.fft.rfft(x)).is_cuda
    torch.complex(x, torch.zeros(8))  # raises RuntimeError


def factories_of_numbers():
    n = torch.tensor(3, device=D)
    torch.arange(n)  # syncs
    torch.full((2,), torch.tensor(1.0, device=D), device=D)  # syncs


def tensor_from_a_device_tensor():
    x = torch.ones(3, device=D)
    assert torch.as_tensor(x) is x
    assert torch.asarray(x).is_cuda and x.clone().detach().is_cuda
    assert torch.as_tensor(x, device=D).is_cuda


def subclass_moves():
    class Named(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Named).to(D)
    assert isinstance(x, Named) and x.is_cuda
    x + torch.ones(3)  # raises RuntimeError: at least two devices


def waits_are_errors_where_asked_for():
    x = torch.randn(3, device=D)
    torch.cuda.set_sync_debug_mode("error")
    torch.zeros(3).pin_memory().to(D, non_blocking=True) + x
    torch.cuda.synchronize()  # syncs
    x.sum().item()  # raises RuntimeError: called a synchronizing CUDA operation


def blocking_copies_are_errors_where_asked_for():
    torch.cuda.set_sync_debug_mode(2)
    torch.zeros(3).to(D)  # raises RuntimeError: called a synchronizing CUDA operation


def waits_are_warnings_where_asked_for():
    x = torch.randn(3, device=D)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        x.nonzero()  # syncs
    assert any("synchronizing CUDA operation" in str(warning.message) for warning in found)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.get_sync_debug_mode() == 0
    x.nonzero()  # syncs


def streams_chosen_for_good():
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    assert main == torch.cuda.default_stream() != side
    torch.cuda.set_stream(side)
    assert torch.cuda.current_stream() == side and torch.cuda.default_stream() == main
    torch.cuda.set_stream(main)
    other = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(other):
        assert torch.cuda.current_device() == 1 and torch.zeros(1, device=D).device.index == 1
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream() == main
