"""Corners of the API: scripting, functional autodiff, custom operators, masked tensors, threads, deterministic mode."""

import copy
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def scripted_module():
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(D))
    model(torch.randn(2, 3, device=D)).sum().backward()


def scripted_module_with_a_host_input():
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(D))
    model(torch.randn(2, 3))  # raises RuntimeError


def traced_by_fx():
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU())).to(D)
    model(torch.randn(2, 3, device=D)).sum().backward()
    model(torch.randn(2, 3))  # raises RuntimeError: same device


def compiled_function():
    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def loss(x, y):
        return (x - y).pow(2).mean()

    loss(torch.randn(3, device=D), torch.randn(3, device=D))
    loss(torch.randn(3, device=D), torch.randn(3))


compiled_function.expects = ("RuntimeError", "two devices", "return (x - y).pow(2).mean()")


def compiled_method():
    model = nn.Linear(3, 3).to(D)
    model.compile()
    model.forward = torch.compile(model.forward)
    model(torch.randn(2, 3, device=D))


def functional_jacobian():
    x = torch.randn(3, device=D)
    assert torch.autograd.functional.jacobian(lambda x: x**2, x).is_cuda
    assert torch.autograd.functional.hessian(lambda x: (x**3).sum(), x).is_cuda
    torch.autograd.functional.vjp(lambda x: x**2, x, torch.ones(3))  # raises RuntimeError


def forward_mode():
    x, tangent = torch.randn(3, device=D), torch.ones(3, device=D)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        out = torch.autograd.forward_ad.unpack_dual(dual.sin())
        assert out.tangent.is_cuda


def operator_of_ones_own():
    @torch.library.custom_op("rehearsed::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(3, device=D)).is_cuda


def thread_pool():
    model = nn.Linear(3, 2).to(D)
    with ThreadPoolExecutor(2) as pool:
        outs = list(pool.map(lambda x: model(x.to(D)), [torch.randn(1, 3) for _ in range(4)]))
    assert torch.cat(outs).is_cuda


def thread_with_a_host_input():
    model, errors = nn.Linear(3, 2).to(D), []

    def work():
        try:
            model(torch.randn(1, 3))  # raises RuntimeError: same device
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise errors[0]


def error_caught_by_the_program():
    try:
        torch.ones(2, device=D) + torch.ones(2)
    except RuntimeError as error:
        assert "two devices" in str(error)
    torch.ones(2, device=D) + torch.ones(2).to(D)


error_caught_by_the_program.caught = True


def out_of_memory_is_an_exception_class():
    assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)
    try:
        torch.ones(2, device=D)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()


def half_weights_of_a_language_model():
    table, layer = nn.Embedding(10, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.ModuleList([table, layer]).to(D, dtype=torch.bfloat16)
    out = model[1](model[0](torch.randint(0, 10, (2, 4), device=D)))
    assert out.dtype is torch.bfloat16
    F.cross_entropy((out @ table.weight.T).flatten(0, 1).float(), torch.zeros(8, dtype=torch.long, device=D)).backward()


def low_precision_everywhere():
    x = torch.randn(2, 3, 8, 8, device=D, dtype=torch.float16)
    F.interpolate(F.avg_pool2d(F.gelu(x), 2), scale_factor=2, mode="bilinear")
    F.group_norm(x, 3)
    F.softmax(x, 1).cumsum(1).log1p().topk(2)
    F.grid_sample(x, torch.zeros(2, 4, 4, 2, device=D, dtype=torch.float16), align_corners=False)
    F.pad(x, (1, 1, 1, 1), mode="reflect")
    torch.linalg.vector_norm(x)
    x.std() + x.var() + x.median() + x.logsumexp(0).max()
    F.conv_transpose2d(x, torch.randn(3, 2, 2, 2, device=D, dtype=torch.float16))
    F.unfold(x, 3)
    torch.cdist(x[0, 0], x[0, 1])


def recurrent_in_half():
    layer = nn.GRU(3, 4, batch_first=True).to(D).half()
    layer(torch.randn(2, 5, 3, device=D, dtype=torch.float16))[0].float().sum().backward()


def mixed_dtypes_promote():
    x = torch.ones(2, device=D, dtype=torch.float16)
    assert (x + torch.tensor(1.0)).dtype is torch.float16
    assert (x + torch.ones(2, device=D)).dtype is torch.float32
    assert torch.cat([x, torch.ones(2, device=D)]).dtype is torch.float32


def attention_of_two_dtypes():
    q = torch.randn(1, 1, 4, 8, device=D, dtype=torch.float16)
    k = torch.randn(1, 1, 4, 8, device=D)
    F.scaled_dot_product_attention(q, k, k)  # raises RuntimeError: same dtype


def convolution_of_integers():
    image, weight = torch.ones(1, 1, 4, 4, dtype=torch.uint8, device=D), torch.ones(1, 1, 2, 2, device=D)
    F.conv2d(image, weight)  # raises RuntimeError


def labels_as_floats():
    F.cross_entropy(torch.randn(2, 3, device=D), torch.tensor([0.0, 1.0], device=D))  # fails RuntimeError


def targets_of_the_wrong_shape():
    F.binary_cross_entropy(torch.rand(2, 1, device=D), torch.rand(2, device=D))  # fails ValueError


def retain_and_reuse():
    x = torch.randn(3, device=D, requires_grad=True)
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    y.backward()  # fails RuntimeError: second time


def inplace_on_a_leaf():
    x = torch.randn(3, device=D, requires_grad=True)
    x += 1  # fails RuntimeError: leaf Variable


def version_counter():
    x = torch.randn(3, device=D, requires_grad=True)
    y = x.exp()
    y += 1
    y.sum().backward()  # fails RuntimeError: modified by an inplace operation


def gradient_of_a_moved_leaf():
    x = torch.randn(3, requires_grad=True)
    y = x.to(D)
    (y * 2).sum().backward()
    assert y.grad is None and not x.grad.is_cuda and x.grad.device.type == "cpu"
    x.grad + torch.ones(3)


def leaf_made_on_the_device():
    x = torch.randn(3).to(D).requires_grad_()
    (x * 2).sum().backward()
    assert x.is_leaf and x.grad.is_cuda


def retained_gradients():
    x = torch.randn(3, device=D, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    y.grad + torch.ones(3)  # raises RuntimeError: two devices


def partial_and_lambda_layers():
    act = functools.partial(F.leaky_relu, negative_slope=0.1)
    shift = torch.ones(3)
    model = nn.Sequential(nn.Linear(3, 3)).to(D)
    block = lambda x: act(model(x)) + shift  # noqa: E731  # raises RuntimeError: two devices
    block(torch.randn(1, 3, device=D))


def unused_host_tensors_are_fine():
    host = torch.randn(3)
    device = torch.randn(3, device=D)
    host.sum() + 1
    device.sum() + 1
    host.mul_(2).clamp_(0)
    host[host > 0].mean().item()
    assert host.tolist() and float(host[0]) == host[0].item()
    print(host.sum())


def host_work_next_to_device_work():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 3)), batch_size=4, shuffle=True)
    layer = nn.Linear(3, 2).to(D)
    scale = torch.tensor([x.abs().max() for (x,) in loader]).max()
    for (x,) in loader:
        x = (x - x.mean(0)) / (x.std(0) + 1e-6) / scale
        if x.isnan().any():
            continue
        layer(x.to(D))


def registered_buffer_of_numbers():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.tensor(0))
            self.register_buffer("ready", torch.tensor(False))

        def forward(self, x):
            self.seen += x.size(0)
            if not self.ready:  # syncs
                self.ready.fill_(True)
            return x

    Counter().to(D)(torch.randn(2, 3, device=D))


def plain_number_on_the_host():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = torch.tensor(0.0)

        def forward(self, x):
            y = x * self.seen
            self.seen += x.sum()  # raises RuntimeError: two devices
            return y

    Counter().to(D)(torch.randn(2, 3, device=D))


def moved_twice_to_the_same_place():
    x = torch.randn(3, device=D)
    assert x.to(D) is x and x.cuda() is x and x.to("cuda:0") is x and x.to(D, copy=True) is not x
    assert torch.randn(3).cpu().device.type == "cpu"


def dtype_and_device_at_once():
    x = torch.randn(3).to(D, torch.float16)
    y = torch.randn(3).to(device=D, dtype=torch.float16, non_blocking=True)
    z = torch.randn(3).half().cuda()
    assert (x + y + z).dtype is torch.float16
    model = nn.Linear(3, 2).to(device=D, dtype=torch.float64)
    assert model.weight.dtype is torch.float64 and model.weight.is_cuda
    model(torch.randn(1, 3, device=D))  # raises RuntimeError: must have the same dtype


def memory_formats():
    x = torch.randn(2, 3, 4, 4).to(D, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    model = nn.Conv2d(3, 4, 3).to(D).to(memory_format=torch.channels_last)
    assert model(x).is_contiguous(memory_format=torch.channels_last)


def tensors_as_dictionary_values():
    state = {"step": torch.tensor(0), "ema": torch.zeros(3)}
    state = {key: value.to(D) for key, value in state.items()}
    state["ema"].mul_(0.9).add_(torch.ones(3, device=D))
    state["step"] += 1
    state["ema"].add_(torch.ones(3))  # raises RuntimeError: two devices


def masked_tensors_and_nan_helpers():
    x = torch.tensor([1.0, float("nan")], device=D)
    x.nanmean() + x.nansum()
    x.nan_to_num_(0.0)
    torch.where(x.isnan(), torch.zeros_like(x), x)
    x.isfinite().logical_not()


def tensor_subclass_with_its_own_rules():
    class Logged(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Logged.calls += 1
            return super().__torch_function__(func, types, args, kwargs)  # syncs

    x = torch.ones(3).as_subclass(Logged).to(D)
    y = (x * 2).cpu()
    assert isinstance(y, Logged) and Logged.calls >= 3


def deterministic_mode():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        torch.zeros(3, device=D).index_add_(0, torch.tensor([0, 0], device=D), torch.ones(2, device=D))
    finally:
        torch.use_deterministic_algorithms(False)


def sdpa_backends():
    q = torch.randn(1, 2, 4, 8, device=D, requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    mask = torch.ones(4, 4, device=D).tril().bool()
    F.scaled_dot_product_attention(q, q, q, attn_mask=mask, dropout_p=0.1).sum().backward()


def flex_generators_in_modules():
    generator = torch.Generator(device=D)
    generator.manual_seed(3)
    nn.init.normal_(torch.empty(3, device=D), generator=generator)
    torch.randint(0, 3, (2,), generator=generator, device=D)
    torch.bernoulli(torch.full((3,), 0.5, device=D), generator=generator)
    torch.normal(0.0, 1.0, (3,), generator=generator, device=D)
    torch.empty(3, device=D).exponential_(generator=generator).random_(generator=generator)
    torch.rand(3, generator=generator)  # raises RuntimeError: Expected a 'cpu' device type for generator


def profiled_on_both_sides():
    sides = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=sides) as found:
        torch.ones(3, device=D).sum()
    assert found.key_averages()


def scripted_functions():
    @torch.jit.script
    def shifted(x: torch.Tensor, y: torch.Tensor):
        return torch.zeros(3, device=x.device) + x + y

    x = torch.ones(3, device=D)
    assert shifted(x, x).is_cuda
    shifted(x, torch.ones(3))


scripted_functions.expects = ("RuntimeError", "two devices", "return torch.zeros(3, device=x.device) + x + y")


def device_objects():
    device = torch.device(1)
    assert (
        device == torch.device("cuda", 1) and isinstance(device, torch.device) and not isinstance("cuda", torch.device)
    )
    assert copy.deepcopy(device) == device and {device: 1}[torch.device("cuda:1")] == 1

    def place(x: torch.Tensor, where: torch.device | None = None) -> torch.Tensor:
        return x.to(where)

    with torch.device(0):
        x = torch.zeros(3)
    assert place(x, device).device == device and place(x, torch.device(0)) is x
