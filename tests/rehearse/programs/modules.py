"""Modules: what ``to`` moves, layers and buffers replaced or built late, meta, lazy, tied and parallel modules."""

import torch
import torch.nn.utils.prune
from torch import nn

D = "cuda"


class Base(nn.Module):
    """One layer of width 3."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)


class Scaled(Base):
    """A plain tensor attribute."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(3)

    def forward(self, x):
        return self.layer(x) * self.scale  # raises RuntimeError: scale (plain attribute


class Heads(Base):
    """Layers in a dict."""

    def __init__(self):
        super().__init__()
        self.heads = {"a": nn.Linear(3, 2)}

    def forward(self, x):
        return self.heads["a"](self.layer(x))  # raises RuntimeError: same device


class Tables(Base):
    """Parameters in a list."""

    def __init__(self):
        super().__init__()
        self.tables = [nn.Parameter(torch.ones(3)) for _ in range(2)]

    def forward(self, x):
        return self.layer(x) + self.tables[1]  # raises RuntimeError: tables[1] (in a plain container


class Late(Base):
    """A layer built in ``forward``."""

    def forward(self, x):
        head = nn.Linear(3, 2)
        return head(self.layer(x))  # raises RuntimeError: same device


class Moved(Base):
    """Everything registered, or moved where it is used."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
        self.tables = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.plain = torch.ones(3)

    def forward(self, x):
        return self.heads["a"](self.layer(x) + self.tables[0] * self.mask + self.plain.to(x.device))


class Cached(Base):
    """A table made at the first call, for the first call's device."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(3.0, device=x.device)
        return self.layer(x) + self.table


class Cleared(Base):
    """A buffer replaced by a host tensor at each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x):
        x = x + self.state  # raises RuntimeError: state (buffer)
        self.state = torch.zeros(3)
        return x


def run(kind, times=1):
    model = kind().to(D)
    for _ in range(times):
        model(torch.randn(2, 3, device=D))


def plain_attribute():
    run(Scaled)


plain_attribute.expects = ("RuntimeError", "scale (plain attribute", "return self.layer(x) * self.scale")


def layers_in_a_dict():
    run(Heads)


layers_in_a_dict.expects = ("RuntimeError", "same device", 'return self.heads["a"](self.layer(x))  #')


def parameters_in_a_list():
    run(Tables)


parameters_in_a_list.expects = ("RuntimeError", "tables[1] (in a plain container", "self.tables[1]  #")


def layer_built_in_forward():
    run(Late)


layer_built_in_forward.expects = ("RuntimeError", "same device", "return head(self.layer(x))")


def all_registered():
    run(Moved)


def table_made_on_the_inputs_device():
    run(Cached, 2)


def buffer_replaced_after_a_call():
    run(Cleared, 2)


buffer_replaced_after_a_call.expects = ("RuntimeError", "state (buffer)", "x = x + self.state")


def table_made_before_the_move():
    model = Cached()
    model(torch.randn(2, 3))
    model.to(D)
    model(torch.randn(2, 3, device=D))


table_made_before_the_move.expects = ("RuntimeError", "table (plain attribute", "return self.layer(x) + self.table\n")


def head_replaced_after_the_move():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(D)
    model[1] = nn.Linear(3, 2)
    model(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def layer_added_after_the_move():
    model = nn.Sequential(nn.Linear(3, 3)).to(D)
    model.append(nn.Linear(3, 2))
    model(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def weight_replaced_after_the_move():
    layer = nn.Linear(3, 2).to(D)
    layer.weight = nn.Parameter(torch.randn(2, 3))
    layer(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def weight_data_replaced_after_the_move():
    layer = nn.Linear(3, 2).to(D)
    layer.weight.data = torch.randn(2, 3)
    layer(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def weight_copied_after_the_move():
    layer = nn.Linear(3, 2).to(D)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(2, 3))
    layer.weight.data.fill_(1.0)
    layer(torch.randn(2, 3, device=D))


def shared_weights_stay_shared():
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    model = nn.ModuleList([table, head]).to(D)
    assert model[0].weight is model[1].weight
    head(table(torch.tensor([1, 2], device=D))).sum().backward()


def module_moves_in_place():
    model = nn.Linear(3, 2)
    same = model.weight
    model.to(D)
    assert model.weight is same and same.is_cuda
    model.cpu()  # syncs
    assert not same.is_cuda
    model(torch.randn(1, 3))


def tensor_does_not_move_in_place():
    x = torch.randn(1, 3)
    x.cuda()
    nn.Linear(3, 2).to(D)(x)  # raises RuntimeError: same device


def parameter_moved_is_no_parameter():
    weight = nn.Parameter(torch.ones(3)).to(D)
    assert not isinstance(weight, nn.Parameter) and not weight.is_leaf
    torch.optim.SGD([weight], lr=0.1)  # fails ValueError: can't optimize a non-leaf Tensor


def lazy_layer_moved_first():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)).to(D)
    model(torch.randn(2, 3, device=D)).sum().backward()
    assert model[0].weight.is_cuda


def lazy_layer_on_the_host():
    model = nn.Sequential(nn.LazyLinear(4))
    model(torch.randn(2, 3, device=D))  # raises RuntimeError: same device


def meta_module_moved():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model.to(D)  # raises NotImplementedError: Cannot copy out of meta tensor


def meta_module_made_real():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model = model.to_empty(device=D)
    model.load_state_dict(nn.Linear(3, 2).state_dict())
    model(torch.randn(1, 3, device=D))


def meta_tensor_meets_a_device_tensor():
    torch.zeros(3, device="meta") + torch.zeros(3, device=D)  # raises RuntimeError: at least two devices


def pruned_and_normalised():
    layer = nn.Linear(3, 2)
    nn.utils.prune.random_unstructured(layer, "weight", 0.5)
    layer.to(D)
    layer(torch.randn(1, 3, device=D)).sum().backward()
    nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)).to(D)(torch.randn(1, 3, device=D))


class Symmetric(nn.Module):
    """A parametrization with a plain mask."""

    def __init__(self):
        super().__init__()
        self.mask = torch.ones(3, 3).triu()

    def forward(self, weight):
        return weight * self.mask


def parametrization_with_a_plain_mask():
    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.to(D)
    layer(torch.randn(1, 3, device=D))


parametrization_with_a_plain_mask.expects = ("RuntimeError", "mask (plain attribute", "return weight * self.mask")


def made_on_the_device():
    layer = nn.Linear(3, 2, device=D, dtype=torch.float64)
    norm = nn.BatchNorm1d(2, device=D).double()
    norm(layer(torch.randn(4, 3, device=D, dtype=torch.float64))).sum().backward()


def two_halves_on_two_gpus():
    first, second = nn.Linear(3, 3).to("cuda:0"), nn.Linear(3, 2).to("cuda:1")
    x = torch.randn(2, 3, device="cuda:0")
    second(first(x).to("cuda:1")).sum().backward()
    assert first.weight.grad.device.index == 0 and second.weight.grad.device.index == 1
    second(first(x))  # raises RuntimeError: same device


def gradients_clipped_over_two_gpus():
    model = nn.ModuleList([nn.Linear(3, 3).to("cuda:0"), nn.Linear(3, 2).to("cuda:1")])
    x = torch.randn(2, 3, device="cuda:0")
    model[1](model[0](x).to("cuda:1")).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.optim.AdamW(model.parameters()).step()


def traced_and_scripted():
    x = torch.randn(2, 3, device=D)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(D)
    torch.jit.trace(model, x, check_trace=False)(x).sum().backward()


def compiled_with_a_host_input():
    model = torch.compile(nn.Linear(3, 2).to(D))
    model(torch.randn(1, 3))  # raises RuntimeError: same device


def parallel_over_one_gpu():
    model = nn.DataParallel(nn.Linear(3, 2).to(D), device_ids=[0])
    model(torch.randn(4, 3)).sum().backward()


def parallel_over_two_gpus():
    model = nn.DataParallel(nn.Linear(3, 2).to(D))
    out = model(torch.randn(4, 3, device=D))
    assert out.shape == (4, 2) and out.device.index == 0
    out.sum().backward()
    assert model.module.weight.grad is not None


def parallel_of_a_host_module():
    model = nn.DataParallel(nn.Linear(3, 2))
    model(torch.randn(4, 3, device=D))  # raises RuntimeError: module must have its parameters and buffers on device
