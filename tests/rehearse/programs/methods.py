"""Methods of fields that make their own tables: routing, tracking, codebooks, meshes, tensor exchange, offloading."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def beam_offsets_on_the_host():
    scores = torch.randn(2, 12, device=D)
    _, flat = scores.topk(3, dim=1)
    flat // 4 + torch.arange(2)[:, None] * 3  # raises RuntimeError: two devices


def beam_search_on_the_device():
    scores = torch.randn(2, 12, device=D)
    best, flat = scores.topk(3, dim=1)
    rows = flat // 4 + torch.arange(2, device=D)[:, None] * 3
    hidden = torch.randn(6, 5, device=D)
    hidden.index_select(0, rows.view(-1)) * best.view(-1, 1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emit = nn.Linear(4, 3)
        self.transitions = torch.zeros(3, 3)

    def forward(self, tokens):
        emissions = self.emit(tokens)
        score = emissions[0]
        for row in emissions[1:]:
            moves = score[:, None] + self.transitions
            score = torch.logsumexp(moves + row[None], dim=0)
        return torch.logsumexp(score, 0)


def transitions_of_a_tagger_left():
    Tagger().to(D)(torch.randn(5, 4, device=D))


transitions_of_a_tagger_left.expects = (
    "RuntimeError",
    "Tagger.transitions",
    "moves = score[:, None]" + " + self.transitions",
)


def best_path_read_back():
    scores = torch.randn(5, 3, device=D)
    back = [row.argmax() for row in scores]
    path = [int(step) for step in back]  # syncs
    assert len(path) == 5


def codebook_left():
    book = torch.randn(8, 4)
    z = torch.randn(6, 4, device=D)
    torch.cdist(z, book)  # raises RuntimeError: same device


def codebook_distances_by_hand():
    book = torch.randn(8, 4)
    z = torch.randn(6, 4, device=D)
    z.pow(2).sum(1, keepdim=True) - 2 * z @ book.T  # raises RuntimeError: same device


def codebook_updated_on_the_device():
    book = nn.Parameter(torch.randn(8, 4, device=D), requires_grad=False)
    z = torch.randn(6, 4, device=D, requires_grad=True)
    codes = torch.cdist(z, book).argmin(1)
    quantised = z + (book[codes] - z).detach()
    quantised.sum().backward()
    with torch.no_grad():
        counts = torch.zeros(8, device=D).index_add_(0, codes, torch.ones(6, device=D))
        book.index_reduce_(0, codes, z.detach(), "mean")
        book.div_(counts.clamp(min=1)[:, None])


def experts_fed_by_masks():
    x = torch.randn(6, 4, device=D)
    gate = nn.Linear(4, 2).to(D)
    experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2)).to(D)
    chosen = gate(x).argmax(1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        picked = chosen == number
        out[picked] = expert(x[picked])  # syncs
    out.sum().backward()  # syncs


def experts_collected_on_the_host():
    x = torch.randn(6, 4, device=D)
    rows = torch.tensor([0, 2], device=D)
    torch.zeros(6, 4).index_add_(0, rows, x[rows])  # raises RuntimeError: same device


def loads_of_experts():
    chosen = torch.tensor([0, 1, 1, 0], device=D)
    counts = torch.bincount(chosen, minlength=2)  # syncs
    order = chosen.argsort()
    torch.randn(4, 3, device=D)[order].split(counts.tolist())  # syncs


def marginals_of_a_transport_plan():
    cost = torch.rand(4, 5, device=D)
    mass = torch.full((4,), 0.25)
    u = torch.zeros(4, device=D)
    mass.log() - torch.logsumexp(u[:, None] - cost, 1)  # raises RuntimeError: two devices


def boxes_matched_to_host_anchors():
    boxes, anchors = torch.rand(3, 4, device=D), torch.rand(5, 4)
    torch.max(boxes[:, None, :2], anchors[:, :2])  # raises RuntimeError: two devices


def spectrum_filtered_on_the_host():
    signal = torch.randn(16, device=D)
    torch.fft.rfft(signal) * torch.hann_window(9)  # raises RuntimeError: two devices


def inverse_transform_with_a_host_window():
    spectrum = torch.stft(torch.randn(64, device=D), 16, window=torch.hann_window(16, device=D), return_complex=True)
    torch.istft(spectrum, 16, window=torch.hann_window(16))  # raises RuntimeError: istft input and window must


def filter_with_a_host_identity():
    covariance, gain = torch.eye(3, device=D), torch.rand(3, 3, device=D)
    (torch.eye(3) - gain) @ covariance  # raises RuntimeError: two devices


def gaussian_process_with_host_targets():
    x = torch.linspace(0, 1, 4, device=D)[:, None]
    kernel = torch.exp(-torch.cdist(x, x)) + 0.1 * torch.eye(4, device=D)
    factor = torch.linalg.cholesky(kernel)  # syncs
    torch.cholesky_solve(torch.randn(4, 1), factor)  # raises RuntimeError: same device


def triangular_solve_mixed():
    torch.linalg.solve_triangular(torch.eye(3, device=D), torch.ones(3, 1), upper=True)  # raises RuntimeError: on


def times_of_an_ode_on_the_host():
    field = nn.Linear(2, 2).to(D)
    times, state = torch.linspace(0, 1, 5), torch.randn(3, 2, device=D)
    for begin, end in itertools.pairwise(times):
        state = state + (end - begin) * field(state)  # numbers of no dimension
    state.sum().backward()


def collocation_points_left():
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to(D)
    points = torch.linspace(0, 1, 5)[:, None].requires_grad_()
    network(points)  # raises RuntimeError: same device


def residual_of_an_equation():
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to(D)
    points = torch.linspace(0, 1, 5, device=D)[:, None].requires_grad_()
    u = network(points)
    (du,) = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)
    (du + u).pow(2).mean().backward()


def area_under_a_curve():
    torch.trapezoid(torch.rand(5, device=D), torch.linspace(0, 1, 5))  # raises RuntimeError: two devices


def sampled_points_written_to_the_host():
    cloud = torch.rand(2, 10, 3, device=D)
    picked = torch.zeros(2, 2, dtype=torch.long)
    farthest = torch.zeros(2, dtype=torch.long, device=D)
    for index in range(2):
        picked[:, index] = farthest  # syncs
        centre = cloud[torch.arange(2), farthest]  # syncs
        farthest = (cloud - centre[:, None]).pow(2).sum(-1).argmax(1)


def lower_triangle_by_host_indices():
    x = torch.rand(4, 4, device=D)
    rows, columns = torch.tril_indices(4, 4)
    x[rows, columns]  # syncs


def adapter_added_after_the_move():
    layer = nn.Linear(4, 4).to(D)
    down, up = torch.randn(2, 4), torch.zeros(4, 2)
    F.linear(torch.randn(3, 4, device=D), layer.weight + up @ down)  # raises RuntimeError: two devices


def weights_of_a_bag_left():
    table = nn.EmbeddingBag(5, 3, mode="sum").to(D)
    ids = torch.tensor([[1, 2]], device=D)
    table(ids, per_sample_weights=torch.ones(1, 2))  # raises RuntimeError: same device


def margin_weights_left():
    x, labels = torch.randn(3, 4, device=D), torch.tensor([0, 1, 2], device=D)
    F.multi_margin_loss(x, labels, weight=torch.ones(4))  # raises RuntimeError: same device


def counts_left():
    F.poisson_nll_loss(torch.rand(3, device=D), torch.ones(3))  # raises RuntimeError: two devices


def adaptive_softmax():
    layer = nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6]).to(D)
    x, labels = torch.randn(4, 6, device=D), torch.tensor([0, 4, 7, 9], device=D)
    layer(x, labels).loss.backward()  # syncs


def adaptive_softmax_labels_left():
    layer = nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6]).to(D)
    layer(torch.randn(4, 6, device=D), torch.tensor([0, 4, 7, 9]))  # raises RuntimeError: on


def masked_scatter_of_a_host_source():
    x = torch.zeros(4, device=D)
    x.masked_scatter_(x == 0, torch.ones(4))  # raises RuntimeError: device


def statistics_renewed_without_a_device():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(D)
    torch.optim.swa_utils.update_bn([torch.randn(4, 3)], model)  # raises RuntimeError: same device


def statistics_renewed():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(D)
    torch.optim.swa_utils.update_bn([torch.randn(4, 3)], model, device=torch.device(D))  # syncs


def one_optimizer_for_both_places():
    head, body = nn.Linear(3, 1), nn.Linear(3, 3).to(D)
    optimizer = torch.optim.AdamW([*head.parameters(), *body.parameters()], lr=0.1)
    head(body(torch.randn(2, 3, device=D)).cpu()).sum().backward()  # syncs
    optimizer.step()


def halves_joined_without_a_copy():
    left, right = nn.Linear(4, 2).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")
    x = torch.randn(3, 4)
    torch.cat([left(x.to("cuda:0")), right(x.to("cuda:1"))], 1)  # raises RuntimeError: same device


def halves_joined():
    left, right = nn.Linear(4, 2).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")
    x = torch.randn(3, 4)
    torch.cat([left(x.to("cuda:0")), right(x.to("cuda:1")).to("cuda:0")], 1).sum().backward()
    assert right.weight.grad.device.index == 1


def broadcast_and_reduced_by_hand():
    x = torch.ones(4, device="cuda:0")
    copies = torch.cuda.comm.broadcast(x, (0, 1))
    assert [copy.device.index for copy in copies] == [0, 1]
    total = torch.cuda.comm.reduce_add(copies, 0)
    assert total.device.index == 0 and torch.equal(total, 2 * x)  # syncs
    parts = torch.cuda.comm.scatter(x, [0, 1])
    assert torch.cuda.comm.gather(parts, destination=1).device.index == 1


class Scaled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        assert x.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
        return x * weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        (weight,) = ctx.saved_tensors
        return gradient * weight, None


def function_with_its_own_precision():
    x = torch.randn(3, device=D, dtype=torch.float16, requires_grad=True)
    with torch.autocast(D):
        y = Scaled.apply(x, torch.ones(3, device=D))
    y.sum().backward()
    assert x.grad.dtype is torch.float16


def function_with_its_own_precision_and_a_host_weight():
    x = torch.randn(3, device=D, requires_grad=True)
    with torch.autocast(D):
        Scaled.apply(x, torch.ones(3)).sum()


function_with_its_own_precision_and_a_host_weight.expects = ("RuntimeError", "two devices", "return x * weight")


def exchanged_by_dlpack():
    x = torch.randn(3, device=D)
    assert int(x.__dlpack_device__()[0]) == 2
    y = torch.from_dlpack(x)
    assert y.is_cuda and y.data_ptr() == x.data_ptr()
    y + x


def numpy_by_dlpack():
    np.from_dlpack(torch.randn(3, device=D))  # raises RuntimeError: Unsupported device


def exchanged_by_an_old_capsule():
    from torch.utils.dlpack import from_dlpack, to_dlpack

    x = torch.randn(3, device=D)
    assert from_dlpack(to_dlpack(x)).is_cuda


def python_functions_on_a_device_tensor():
    torch.ones(3, device=D).apply_(lambda value: value * 2)  # raises TypeError: only implemented on CPU tensors


def python_functions_of_two_tensors():
    x = torch.ones(3, device=D)
    x.map_(x, lambda a, b: a + b)  # raises TypeError: only implemented on CPU tensors


def numbers_by_the_math_module():
    x = torch.tensor(4.0, device=D)
    math.sqrt(x)  # syncs
    max(torch.ones(2, device=D))  # syncs
    sum(torch.ones(3, device=D))


def padded_rows_of_both_places():
    rows = [torch.ones(2, device=D), torch.ones(3)]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # copied into the first row's place
    assert padded.is_cuda and padded.shape == (2, 3)


def array_interface():
    assert torch.ones(3, device=D).__cuda_array_interface__["shape"] == (3,)
    _ = torch.ones(3).__cuda_array_interface__  # fails AttributeError: on non-CUDA tensor type


def quantiles_left():
    torch.quantile(torch.rand(4, device=D), torch.tensor([0.1, 0.9]))  # raises RuntimeError: q tensor must be


def quantiles_by_name():
    x = torch.rand(4, device=D)
    x.quantile(q=torch.tensor([0.1, 0.9], device=D))
    x.nanquantile(0.5)


def patches_weighted_on_the_host():
    patches = F.unfold(torch.rand(1, 1, 4, 4, device=D), 2)
    F.fold(patches * torch.ones(4, 1), (4, 4), 2)  # raises RuntimeError: two devices


def differences_appended_on_the_host():
    torch.rand(3, device=D).diff(append=torch.rand(1))  # raises RuntimeError: same device


def kernels_multiplied_mixed():
    torch.kron(torch.rand(2, 2, device=D), torch.rand(2, 2))  # raises RuntimeError: two devices


def chances_on_the_host():
    torch.rand(3, device=D).bernoulli_(torch.rand(3))  # raises RuntimeError: two devices


def counts_of_repeats_left():
    torch.repeat_interleave(torch.rand(3, device=D), torch.tensor([1, 2, 1]))  # raises RuntimeError: same device


def written_through_views():
    x = torch.zeros(3, 3, device=D)
    x.diagonal().copy_(torch.ones(3))
    x.view(-1)[:3] = torch.ones(3)
    x.T.unbind(0)[1].add_(1)
    first, rest = x.split([1, 2])
    assert first.is_cuda and rest.expand(2, 2, 3).is_cuda and x.unfold(0, 2, 1).is_cuda
