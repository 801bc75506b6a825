"""Stand-ins for ``torch.cuda`` (``torch.xpu``, ``torch.mps``) and ``torch.accelerator``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from devlint.runtime._rehearse.patches import Patches
from devlint.runtime._rehearse.rng import RandomState
from devlint.runtime._rehearse.state import Rehearsal, RehearsalUnsupported
from devlint.runtime._rehearse.streams import DeviceScope, generic_event, stream_types
from devlint.runtime._rehearse.tensor_api import legacy_dtype

TOTAL_MEMORY = 80 << 30
_UNSUPPORTED = (
    "CUDAGraph", "graph", "make_graphed_callables", "MemPool", "use_mem_pool", "ExternalStream",
    "CUDAPluggableAllocator", "change_current_allocator", "caching_allocator_alloc", "GreenContext", "cudart",
)  # fmt: skip
_STATS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
_POOLS = ("all", "large_pool", "small_pool")
_WHEN = ("current", "peak", "allocated", "freed")
_LEGACY = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")


def install(session: Rehearsal, patches: Patches) -> None:
    """Replace the device module's API for this rehearsal."""
    module = getattr(torch, session.kind)
    stream, event, context = stream_types(session)
    functions = {**_devices(session), **_memory(session), **_random(session), **_waiting(session, stream)}
    for name, value in functions.items():
        patches.set(module, name, value)
    scope = type("device", (DeviceScope,), {"session": session})
    for name, value in {"Stream": stream, "Event": event, "StreamContext": context, "device": scope}.items():
        patches.set(module, name, value)
    patches.set(module, "device_of", scope)
    patches.set(module, "stream", context)
    patches.set(torch, "Stream", stream)
    patches.set(torch, "Event", generic_event(session, event))
    if session.kind == "cuda":
        _cuda_only(session, patches)
    if session.kind == "mps":
        for name in ("is_available", "is_built"):
            patches.set(torch.backends.mps, name, lambda: True)
        patches.set(torch.backends.mps, "is_macos_or_newer", lambda major, minor: True)
        for name in ("current_allocated_memory", "driver_allocated_memory"):
            patches.set(module, name, functions["memory_allocated"])
        patches.set(module, "recommended_max_memory", lambda: TOTAL_MEMORY)
    _accelerator(session, patches, {**functions, "device_index": scope})


def _index(session: Rehearsal, device: Any) -> int:
    if device is None:
        return session.current
    target = session.resolve(device)
    if target is None:
        raise ValueError(f"Expected a {session.kind} device, but got: {device}")
    return int(target.index)


def _devices(session: Rehearsal) -> dict[str, Callable[..., Any]]:
    count = len(session.devices)

    def set_device(device: Any) -> None:
        session.current = _index(session, device)

    def properties(device: Any = None) -> Any:
        index = _index(session, device)
        return SimpleNamespace(
            name=f"rehearsed {session.kind}:{index}",
            major=9,
            minor=0,
            total_memory=TOTAL_MEMORY,
            multi_processor_count=132,
            warp_size=32,
            max_threads_per_multi_processor=2048,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName="",
            uuid="",
            L2_cache_size=50 << 20,
        )

    return {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: session.current,
        "set_device": set_device,
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": properties,
        "can_device_access_peer": lambda device, peer_device: True,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_tf32_supported": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": session.check_process,
        "_lazy_call": lambda function, **kwargs: function(),
        "get_arch_list": lambda: ["sm_90"],
        "utilization": lambda device=None: 0,
        "temperature": lambda device=None: 0,
        "power_draw": lambda device=None: 0,
        "clock_rate": lambda device=None: 0,
    }


def _memory(session: Rehearsal) -> dict[str, Callable[..., Any]]:
    def allocated(device: Any = None) -> int:
        return session.tags.live_bytes(session.devices[_index(session, device)])

    def peak(device: Any = None) -> int:
        session.tags.sweep()
        return session.tags.peak

    def reset(device: Any = None) -> None:
        session.report.peak_bytes = max(session.report.peak_bytes, peak())
        session.tags.reset_peak()

    def stats(device: Any = None) -> dict[str, int]:
        found = dict.fromkeys((f"{name}.{pool}.{when}" for name in _STATS for pool in _POOLS for when in _WHEN), 0)
        for name in ("allocated", "reserved", "active", "requested"):
            found[f"{name}_bytes.all.current"] = allocated(device)
            found[f"{name}_bytes.all.peak"] = peak(device)
        return {**found, "num_alloc_retries": 0, "num_ooms": 0, "num_sync_all_streams": 0, "num_device_alloc": 0}

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return {
        "memory_allocated": allocated,
        "max_memory_allocated": peak,
        "memory_reserved": allocated,
        "max_memory_reserved": peak,
        "memory_cached": allocated,
        "max_memory_cached": peak,
        "reset_peak_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset,
        "reset_accumulated_memory_stats": nothing,
        "mem_get_info": lambda device=None: (TOTAL_MEMORY - allocated(device), TOTAL_MEMORY),
        "memory_stats": stats,
        "memory_summary": lambda device=None, abbreviated=False: f"{allocated(device)} bytes allocated (rehearsed)",
        "memory_snapshot": lambda *args, **kwargs: [],
        "memory_usage": lambda device=None: 0,
        "device_memory_used": allocated,
        "list_gpu_processes": lambda device=None: "no processes are running",
        "empty_cache": nothing,
        "ipc_collect": nothing,
        "set_per_process_memory_fraction": nothing,
    }


def _random(session: Rehearsal) -> dict[str, Callable[..., Any]]:
    random = RandomState(session)
    return {
        "get_rng_state": random.get_rng_state,
        "set_rng_state": random.set_rng_state,
        "get_rng_state_all": random.get_rng_state_all,
        "set_rng_state_all": random.set_rng_state_all,
        "manual_seed": random.manual_seed,
        "manual_seed_all": random.manual_seed,
        "seed": random.seed,
        "seed_all": random.seed,
        "initial_seed": random.initial_seed,
    }


def _waiting(session: Rehearsal, stream: Any) -> dict[str, Callable[..., Any]]:
    def synchronize(device: Any = None) -> None:
        _index(session, device)
        session.sync("synchronize")

    def set_sync_debug_mode(debug_mode: Any) -> None:
        modes = {"default": 0, "warn": 1, "error": 2}
        if debug_mode not in modes and debug_mode not in modes.values():
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        session.sync_debug = modes.get(debug_mode, debug_mode)

    return {
        "synchronize": synchronize,
        "current_stream": stream.of,
        "default_stream": stream.default,
        "set_stream": stream.choose,
        "is_current_stream_capturing": lambda: False,
        "get_sync_debug_mode": lambda: session.sync_debug,
        "set_sync_debug_mode": set_sync_debug_mode,
        "_sleep": lambda cycles: None,
    }


def _unsupported(name: str, session: Rehearsal) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        text = f"torch.cuda.{name} can't be rehearsed on a CPU"
        session.report.note(text)
        raise RehearsalUnsupported(text)

    return refuse


def _legacy_type(session: Rehearsal, name: str) -> Any:
    """``torch.cuda.FloatTensor``: makes tensors, and answers ``isinstance``."""
    dtype = legacy_dtype(name)

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return (
                isinstance(instance, torch.Tensor)
                and instance.dtype is dtype
                and session.rehearsed(session.device_of(instance))
            )

        def __call__(cls, *data: Any) -> torch.Tensor:
            device = session.devices[session.current]
            if data and not all(isinstance(size, int) for size in data):
                return torch.tensor(data[0], dtype=dtype, device=device)
            return torch.empty(data, dtype=dtype, device=device)

    return Meta(name, (), {"rehearsed_name": f"torch.{session.kind}.{name}", "dtype": dtype, "is_cuda": True})


def _cuda_only(session: Rehearsal, patches: Patches) -> None:
    cuda = torch.cuda
    for name in _UNSUPPORTED:
        if hasattr(cuda, name):
            patches.set(cuda, name, _unsupported(name, session))
    for name in _LEGACY:
        patches.set(cuda, f"{name}Tensor", _legacy_type(session, f"{name}Tensor"))
    patches.set(torch, "set_default_tensor_type", _default_type(session, torch.set_default_tensor_type))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.set(cuda.nvtx, name, lambda *args, **kwargs: 0)
    patches.set(cuda.nvtx, "range", lambda *args, **kwargs: contextlib.nullcontext())
    for module in (cuda.memory, cuda.random):
        for name in vars(module):
            if name in vars(cuda) and callable(vars(cuda)[name]) and not name.startswith("_"):
                patches.set(module, name, getattr(cuda, name))
    patches.set(cuda.memory, "_record_memory_history", lambda *args, **kwargs: None)
    patches.set(torch.version, "cuda", "12.8")
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cudnn, "version", lambda: 91000)
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(cuda, "default_generators", tuple(torch.Generator(device) for device in session.devices))


def _default_type(session: Rehearsal, original: Any) -> Any:
    """``torch.set_default_tensor_type`` that knows ``torch.cuda.FloatTensor``."""
    prefix = f"torch.{session.kind}."

    def set_default_tensor_type(chosen: Any) -> None:
        name = chosen if isinstance(chosen, str) else getattr(chosen, "rehearsed_name", "")
        if name.startswith(prefix):
            torch.set_default_dtype(legacy_dtype(name))
            torch.set_default_device(session.devices[session.current])
        else:
            torch.set_default_device(None)
            original(chosen)

    return set_default_tensor_type


def _accelerator(session: Rehearsal, patches: Patches, functions: dict[str, Callable[..., Any]]) -> None:
    module = getattr(torch, "accelerator", None)
    if module is None:
        return  # before torch 2.6
    stand_ins: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": functions["device_count"],
        "current_accelerator": lambda check_available=False: torch.device(session.kind),
        "current_device_index": functions["current_device"],
        "current_device_idx": functions["current_device"],
        "set_device_index": functions["set_device"],
        "set_device_idx": functions["set_device"],
        "current_stream": functions["current_stream"],
        "set_stream": functions["set_stream"],
        "synchronize": functions["synchronize"],
        "empty_cache": functions["empty_cache"],
        "memory_allocated": functions["memory_allocated"],
        "max_memory_allocated": functions["max_memory_allocated"],
        "memory_reserved": functions["memory_reserved"],
        "max_memory_reserved": functions["max_memory_reserved"],
        "memory_stats": functions["memory_stats"],
        "reset_peak_memory_stats": functions["reset_peak_memory_stats"],
        "get_memory_info": functions["mem_get_info"],
        "device_index": functions["device_index"],
    }
    for name, value in stand_ins.items():
        if hasattr(module, name):
            patches.set(module, name, value)

    def exchange(index: int) -> int:
        before = session.current
        if index >= 0:
            functions["set_device"](index)
        return before

    for name in ("_accelerator_exchangeDevice", "_accelerator_maybeExchangeDevice"):
        patches.set(torch._C, name, exchange)  # what torch.accelerator.device_index stands on
