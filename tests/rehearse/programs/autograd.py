"""Custom Functions, hooks, checkpointing, torch.func, sparse tensors."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

D = "cuda"


class Scale(torch.autograd.Function):
    """Multiplies by a factor given as a tensor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (factor,) = ctx.saved_tensors
        return grad * factor, None


class HostScale(torch.autograd.Function):
    """Saves a host tensor for its backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.full((3,), 2.0))
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (factor,) = ctx.saved_tensors
        return grad * factor  # raises RuntimeError: at least two devices


class Separate(torch.autograd.Function):
    """The newer form, with ``setup_context``."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


def function_on_the_device():
    x = torch.randn(3, device=D, requires_grad=True)
    Scale.apply(x, torch.ones(3, device=D)).sum().backward()
    Separate.apply(x).sum().backward()
    assert x.grad.is_cuda


def function_with_a_host_factor():
    x = torch.randn(3, device=D, requires_grad=True)
    Scale.apply(x, torch.ones(3)).sum()  # in Scale.forward


function_with_a_host_factor.expects = ("RuntimeError", "at least two devices", "return x * factor")


def function_that_saves_a_host_tensor():
    x = torch.randn(3, device=D, requires_grad=True)
    HostScale.apply(x).sum().backward()


function_that_saves_a_host_tensor.expects = ("RuntimeError", "at least two devices", "return grad * factor  #")


def backward_twice_by_hand():
    x = torch.randn(3, device=D, requires_grad=True)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    grad.pow(2).sum().backward()
    assert x.grad.is_cuda


def gradient_penalty_weight_left():
    x = torch.randn(3, device=D, requires_grad=True)
    torch.autograd.grad(x * 2, x, grad_outputs=torch.ones(3))  # raises RuntimeError


def backward_with_a_host_gradient():
    x = torch.randn(3, device=D, requires_grad=True)
    (x * 2).backward(torch.ones(3))  # raises RuntimeError


def backward_with_its_own_gradient():
    x = torch.randn(3, device=D, requires_grad=True)
    y = x * 2
    y.backward(torch.ones_like(y))


def forward_hook_adds_a_host_tensor():
    layer = nn.Linear(3, 3).to(D)
    noise = torch.randn(3)
    layer.register_forward_hook(lambda module, inputs, output: output + noise)  # raises RuntimeError: two devices
    layer(torch.randn(2, 3, device=D))


def pre_hook_moves_to_the_host():
    layer = nn.Linear(3, 3).to(D)
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0].cpu(),))  # syncs
    layer(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def features_kept_by_a_hook():
    layer = nn.Linear(3, 3).to(D)
    kept = {}
    layer.register_forward_hook(lambda module, inputs, output: kept.update(out=output.detach()))
    layer(torch.randn(2, 3, device=D))
    assert kept["out"].is_cuda


def parameter_hook_masks_on_the_host():
    layer = nn.Linear(3, 3).to(D)
    mask = torch.ones(3, 3)
    layer.weight.register_hook(lambda grad: grad * mask)  # raises RuntimeError: at least two devices
    layer(torch.randn(2, 3, device=D)).sum().backward()


def optimizer_in_the_backward():
    layer = nn.Linear(3, 3).to(D)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in layer.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    layer(torch.randn(2, 3, device=D)).sum().backward()


def hook_removed():
    x = torch.randn(3, device=D, requires_grad=True)
    handle = x.register_hook(lambda grad: grad.cpu())
    handle.remove()
    x.sum().backward()


def checkpointed_block_makes_a_host_tensor():
    layer = nn.Linear(3, 3).to(D)

    def block(x):
        return layer(x) + torch.zeros(3)

    checkpoint(block, torch.randn(2, 3, device=D), use_reentrant=False)


checkpointed_block_makes_a_host_tensor.expects = ("RuntimeError", "at least two devices", "return layer(x) +")


def checkpointed_in_segments():
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)]).to(D)
    x = torch.randn(2, 3, device=D, requires_grad=True)
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    with torch.autocast(D, dtype=torch.bfloat16):
        out = checkpoint(model, x, use_reentrant=False)
    out.float().sum().backward()


def saved_on_the_host():
    x = torch.randn(3, device=D, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()  # syncs
    y.backward()
    assert x.grad.is_cuda


def functional_call_with_host_weights():
    layer = nn.Linear(3, 2)
    weights = {name: p.detach() for name, p in layer.named_parameters()}
    layer.to(D)
    torch.func.functional_call(layer, weights, (torch.randn(1, 3, device=D),))  # raises RuntimeError: same device


def per_sample_gradients():
    layer = nn.Linear(3, 1).to(D)
    weights = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (x[None],)).sum()

    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, torch.randn(4, 3, device=D))
    assert grads["weight"].is_cuda and grads["weight"].shape == (4, 1, 3)


def vmap_with_a_host_tensor():
    bias = torch.zeros(3)
    torch.func.vmap(lambda x: x + bias)(torch.randn(4, 3, device=D))  # raises RuntimeError


def jacobians_and_products():
    x = torch.randn(3, device=D)
    assert torch.func.jacrev(lambda x: x**2)(x).is_cuda
    assert torch.func.hessian(lambda x: (x**3).sum())(x).is_cuda
    assert torch.func.jvp(lambda x: x.sin(), (x,), (torch.ones_like(x),))[1].is_cuda


def ensemble_of_models():
    models = [nn.Linear(3, 2).to(D) for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(models)
    base = models[0]

    def call(weights, buffers, x):
        return torch.func.functional_call(base, (weights, buffers), (x,))

    assert torch.func.vmap(call, in_dims=(0, 0, None))(weights, buffers, torch.randn(4, 3, device=D)).is_cuda


def sparse_values_left():
    indices = torch.tensor([[0, 1], [1, 0]], device=D)
    torch.sparse_coo_tensor(indices, torch.ones(2), (2, 2))  # raises RuntimeError: must match device of values


def sparse_product_mixed():
    adjacency = torch.eye(3).to_sparse()
    torch.sparse.mm(adjacency, torch.ones(3, 2, device=D))  # raises RuntimeError


def sparse_training():
    adjacency = torch.eye(3).to_sparse().to(D)
    layer = nn.Linear(2, 2).to(D)
    torch.sparse.mm(adjacency, layer(torch.ones(3, 2, device=D))).sum().backward()
    assert adjacency.device.type == "cuda" and adjacency.to_dense().is_cuda


def sparse_rows():
    rows = torch.eye(3).to_sparse_csr().to(D)
    assert (rows @ torch.ones(3, 2, device=D)).is_cuda


def sparse_sum_mixed():
    a = torch.eye(3).to_sparse().to(D)
    a + torch.eye(3).to_sparse()  # raises RuntimeError


def straight_through_and_gumbel():
    logits = torch.randn(2, 3, device=D, requires_grad=True)
    nn.functional.gumbel_softmax(logits, hard=True).sum().backward()


def distribution_parameters_mixed():
    mean = torch.zeros(3, device=D)
    torch.distributions.Normal(mean, torch.ones(3)).rsample()  # raises RuntimeError: at least two devices


def distribution_checks_wait():
    torch.distributions.Normal(torch.zeros(3, device=D), 1.0).sample()  # syncs


def distribution_without_checks():
    made = torch.distributions.Normal(torch.zeros(3, device=D), 1.0, validate_args=False)
    made.log_prob(made.rsample())


def anomaly_mode():
    x = torch.randn(3, device=D, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        x.exp().sum().backward()  # syncs
