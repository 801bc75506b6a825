"""Deprecated and removed names of torch, as data; `tests/checks/test_deprecation_table.py` holds it against the torch
that is installed. The arguments are in `argument_table.py`, the rewriting of calls in `rewrites.py`.

Sources: the `@deprecated` decorators, warnings and documentation of torch 2.13, and the removals that TorchFix lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class Symbol(NamedTuple):
    """A name that has a successor, or none (`new` is empty).

    `since` is the release that deprecated it, `removed` the one that took it out. `gate` is the oldest torch that has
    `new`. `fix` says whether a use can be rewritten by the name alone, or its call by the function of `rewrites.py` for
    the old name. `first` is an argument that the new name takes before all others.
    """

    code: str
    old: str
    new: str
    since: str
    fix: Literal["safe", "unsafe", "none"] = "none"
    gate: tuple[int, int] = (1, 0)
    first: str = ""
    removed: str = ""
    note: str = ""


def _autocast() -> Iterator[Symbol]:
    for device, legacy in (("cuda", "gpu"), ("cpu", "cpu"), ("xla", "xla"), ("ipu", "ipu")):
        pairs = [(f"{verb}_autocast_{legacy}_dtype", f"{verb}_autocast_dtype") for verb in ("get", "set")]
        if device != "cuda":
            pairs += [(f"{verb}_autocast_{device}_enabled", f"{verb}_autocast_enabled") for verb in ("is", "set")]
        for old, new in pairs:
            yield Symbol("TDL504", f"torch.{old}", f"torch.{new}", "2.4", "safe", (2, 4), f'"{device}"')


def _cuda() -> Iterator[Symbol]:
    memory = "torch.cuda."
    yield Symbol("TDL512", memory + "memory_cached", memory + "memory_reserved", "1.4", "safe")
    yield Symbol("TDL512", memory + "max_memory_cached", memory + "max_memory_reserved", "1.4", "safe")
    for name in ("allocated", "cached"):
        note = "it resets all peaks, as the old name does by now"
        old, new = f"{memory}reset_max_memory_{name}", memory + "reset_peak_memory_stats"
        yield Symbol("TDL512", old, new, "1.4", "unsafe", note=note)


def _device() -> Iterator[Symbol]:
    note = "built, not available: torch.cuda.is_available() is what is usually meant"
    yield Symbol("TDL513", "torch.has_cuda", "torch.backends.cuda.is_built", "2.1", note=note)
    yield Symbol("TDL513", "torch.has_cudnn", "torch.backends.cudnn.is_available", "2.1")
    yield Symbol("TDL513", "torch.has_mps", "torch.backends.mps.is_built", "2.1")
    yield Symbol("TDL513", "torch.has_mkldnn", "torch.backends.mkldnn.is_available", "2.1")
    place = "torch.accelerator."
    yield Symbol("TDL515", place + "current_device_idx", place + "current_device_index", "2.8", "safe", (2, 7))
    yield Symbol("TDL515", place + "set_device_idx", place + "set_device_index", "2.8", "safe", (2, 7))
    gone = "2.13 or before"
    use = "torch.use_deterministic_algorithms"
    yield Symbol("TDL517", "torch.set_deterministic", use, "1.8", "safe", (1, 8), removed=gone)
    use = "torch.are_deterministic_algorithms_enabled"
    yield Symbol("TDL517", "torch.is_deterministic", use, "1.8", "safe", (1, 8), removed=gone)
    new = "torch.nn.attention.sdpa_kernel"
    note = "the back ends are a list"
    yield Symbol("TDL517", "torch.backends.cuda.sdp_kernel", new, "2.3", gate=(2, 5), note=note)
    for name in ("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"):
        yield Symbol("TDL517", f"torch.{name}", "", "2.12", note="the quantized dtypes go; torchao takes their place")


def _data() -> Iterator[Symbol]:
    data = "torch.utils.data."
    yield Symbol("TDL517", data + "graph.traverse", data + "graph.traverse_dps", "1.13")
    old, new = data + "graph_settings.apply_shuffle_seed", data + "graph_settings.apply_random_seed"
    yield Symbol("TDL517", old, new, "1.12", "safe", (1, 13))
    note = "a DataLoader seeds and shards by itself"
    yield Symbol("TDL517", data + "backward_compatibility.worker_init_fn", "", "1.13", note=note)


def _distributed() -> Iterator[Symbol]:
    dist = "torch.distributed."
    yield Symbol("TDL517", dist + "reduce_op", dist + "ReduceOp", "1.0", "safe")
    for old, new in (
        ("all_gather_into_tensor", "all_gather_single"),
        ("_all_gather_base", "all_gather_single"),
        ("reduce_scatter_tensor", "reduce_scatter_single"),
        ("_reduce_scatter_base", "reduce_scatter_single"),
    ):
        yield Symbol("TDL517", dist + old, dist + new, "2.13", "safe", (2, 13))
    yield Symbol("TDL517", dist + "all_reduce_coalesced", "", "1.13", note="it is not to be relied upon")
    yield Symbol("TDL517", dist + "all_gather_coalesced", "", "1.13", note="it is not to be relied upon")
    for name in ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"):
        note = "one process drives one GPU"
        yield Symbol("TDL517", f"{dist}{name}_multigpu", dist + name, "2.0", removed="2.13 or before", note=note)
    old, new = dist + "distributed_c10d._get_global_rank", dist + "get_global_rank"
    yield Symbol("TDL517", old, new, "1.13", "safe", (1, 13))
    for name, new in (
        ("all_reduce", "all_reduce"),
        ("all_gather", "all_gather_single"),
        ("broadcast", "broadcast"),
        ("reduce_scatter", "reduce_scatter_single"),
        ("all_to_all_single", "all_to_all_single"),
    ):
        note = "the arguments are other ones"
        yield Symbol(
            "TDL517",
            f"{dist}nn.functional.{name}",
            f"{dist}_functional_collectives.{new}",
            "2.13",
            gate=(2, 13),
            note=note,
        )
    fsdp, state = dist + "fsdp.FullyShardedDataParallel.", dist + "checkpoint.state_dict."
    yield Symbol("TDL517", fsdp + "state_dict_type", state + "get_state_dict", "2.2", gate=(2, 2))
    yield Symbol("TDL517", fsdp + "set_state_dict_type", state + "set_state_dict", "2.2", gate=(2, 2))
    ddp = "torch.nn.parallel.DistributedDataParallel"
    yield Symbol("TDL517", dist + "fsdp.ShardingStrategy.NO_SHARD", ddp, "2.2")
    yield Symbol("TDL517", ddp + "CPU", ddp, "1.1", "safe")
    yield Symbol("TDL517", dist + "checkpoint.save_state_dict", dist + "checkpoint.save", "2.2", gate=(2, 2))
    yield Symbol("TDL517", dist + "checkpoint.load_state_dict", dist + "checkpoint.load", "2.2", gate=(2, 2))
    metrics = dist + "elastic.metrics."
    yield Symbol("TDL517", metrics + "profile", metrics + "prof", "1.9")
    yield Symbol("TDL517", metrics + "publish_metric", metrics + "put_metric", "1.9")
    yield Symbol("TDL517", dist + "pipeline.sync.Pipe", dist + "pipelining.pipeline", "2.2", removed="2.13 or before")


def _autograd() -> Iterator[Symbol]:
    yield Symbol("TDL517", "torch.autograd.profiler_legacy.profile", "torch.profiler.profile", "1.8")
    for name in ("vmap", "grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "functionalize"):
        yield Symbol("TDL517", f"functorch.{name}", f"torch.func.{name}", "2.0", "safe", (2, 0))
    for name in ("make_functional", "make_functional_with_buffers"):
        yield Symbol("TDL517", f"functorch.{name}", "torch.func.functional_call", "2.0", gate=(2, 0))
    old = "torch.nn.utils.stateless.functional_call"
    yield Symbol("TDL517", old, "torch.func.functional_call", "2.0", "safe", (2, 0))
    yield Symbol("TDL517", "torch.library.impl_abstract", "torch.library.register_fake", "2.4", "safe", (2, 4))
    tree = "torch.utils._pytree."
    yield Symbol("TDL517", tree + "_register_pytree_node", tree + "register_pytree_node", "2.2", gate=(2, 2))


def _nn() -> Iterator[Symbol]:
    nn, old = "torch.nn.", "0.4"
    yield Symbol("TDL517", nn + "utils.clip_grad_norm", nn + "utils.clip_grad_norm_", old, "safe")
    for name in ("upsample", "upsample_nearest", "upsample_bilinear"):
        level: Literal["safe", "none"] = "safe" if name == "upsample" else "none"
        yield Symbol("TDL517", nn + "functional." + name, nn + "functional.interpolate", old, level)
    for name in ("UpsamplingNearest2d", "UpsamplingBilinear2d"):
        yield Symbol("TDL517", nn + name, nn + "Upsample", "1.0")
    yield Symbol("TDL517", nn + "NLLLoss2d", nn + "NLLLoss", old, "safe")
    yield Symbol("TDL517", nn + "Container", nn + "Module", old)
    note = "the weights have other names in a state_dict"
    yield Symbol(
        "TDL517", nn + "utils.weight_norm", nn + "utils.parametrizations.weight_norm", "2.1", gate=(2, 1), note=note
    )
    for name in (
        "uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal sparse"
    ).split():
        yield Symbol("TDL517", f"torch.nn.init.{name}", f"torch.nn.init.{name}_", old, "safe")


def _linear_algebra() -> Iterator[Symbol]:
    lin, swapped = "torch.linalg.", "the arguments change places"
    note = "it takes the matrices as one sequence"
    yield Symbol("TDL517", "torch.chain_matmul", lin + "multi_dot", "1.8", gate=(1, 8), note=note)
    yield Symbol("TDL517", "torch.cholesky", lin + "cholesky", "1.8", gate=(1, 10))
    yield Symbol("TDL517", "torch.qr", lin + "qr", "1.8", gate=(1, 8), note="`some` becomes `mode`")
    yield Symbol("TDL517", "torch.ger", "torch.outer", "1.8", "safe", (1, 7))
    yield Symbol("TDL517", "torch.norm", lin + "vector_norm", "1.8", note="or `torch.linalg.matrix_norm`")
    yield Symbol("TDL517", "torch.svd", lin + "svd", "1.9", note="it returns the third matrix transposed")
    yield Symbol("TDL517", "torch.lu", lin + "lu_factor", "1.12", note="the pivots come with it only by name")
    yield Symbol("TDL517", "torch.lu_solve", lin + "lu_solve", "1.12", gate=(1, 13), note=swapped)
    yield Symbol("TDL517", "torch.triangular_solve", lin + "solve_triangular", "1.11", note=swapped)
    for name, new, note in (
        ("symeig", "eigh", "all eigenvectors come with it"),
        ("eig", "eig", "the result is complex"),
        ("lstsq", "lstsq", swapped),
        ("solve", "solve", swapped),
        ("matrix_rank", "matrix_rank", ""),
    ):
        yield Symbol("TDL517", "torch." + name, lin + new, "1.9", removed="2.0", note=note)
    note = "arange leaves the end out, and keeps integers"
    yield Symbol("TDL517", "torch.range", "torch.arange", "0.4", note=note)
    note = "it compares dtypes and devices, too"
    yield Symbol("TDL517", "torch.testing.assert_allclose", "torch.testing.assert_close", "1.12", note=note)


SYMBOLS: dict[str, Symbol] = {
    entry.old: entry
    for part in (_autocast, _cuda, _device, _data, _distributed, _autograd, _nn, _linear_algebra)
    for entry in part()
}
