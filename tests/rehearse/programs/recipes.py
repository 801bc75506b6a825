"""Training recipes as people write them, each with one tensor left behind, or none."""

import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

D = "cuda"


def onehot_targets_by_scatter():
    labels = torch.tensor([0, 2, 1], device=D)
    torch.zeros(3, 4).scatter_(1, labels[:, None], 1.0)  # raises RuntimeError: same device


def identity_mask_of_contrastive_pairs():
    z = F.normalize(torch.randn(4, 8, device=D), dim=1)
    similarity = z @ z.T
    similarity[torch.eye(4).bool()] = -1e9  # syncs
    labels = torch.arange(4)
    F.cross_entropy(similarity, labels)  # raises RuntimeError: same device


def contrastive_on_the_device():
    z = F.normalize(torch.randn(4, 8, device=D), dim=1)
    similarity = (z @ z.T).masked_fill(torch.eye(4, dtype=torch.bool, device=z.device), -1e9)
    F.cross_entropy(similarity, torch.arange(4, device=z.device))


def gan_labels():
    critic = nn.Linear(8, 1).to(D)
    real = torch.randn(4, 8).to(D)
    F.binary_cross_entropy_with_logits(critic(real), torch.ones(4, 1))  # raises RuntimeError: two devices


def gan_noise():
    generator = nn.Linear(2, 8).to(D)
    generator(torch.randn(4, 2))  # raises RuntimeError: same device


def gradient_penalty():
    critic = nn.Linear(8, 1).to(D)
    real, fake = torch.randn(4, 8, device=D), torch.randn(4, 8, device=D)
    alpha = torch.rand(4, 1)
    mixed = alpha * real + (1 - alpha) * fake  # raises RuntimeError: two devices
    critic(mixed)


def gradient_penalty_on_the_device():
    critic = nn.Linear(8, 1).to(D)
    alpha = torch.rand(4, 1, device=D)
    mixed = (alpha * torch.randn(4, 8, device=D)).requires_grad_()
    out = critic(mixed)
    (grad,) = torch.autograd.grad(out, mixed, torch.ones_like(out), create_graph=True)
    ((grad.norm(2, dim=1) - 1) ** 2).mean().backward()


def reparametrised_with_host_noise():
    mean, log_var = torch.zeros(2, 3, device=D), torch.zeros(2, 3, device=D)
    mean + torch.randn(mean.shape) * (0.5 * log_var).exp()  # raises RuntimeError: two devices


def reparametrised():
    mean, log_var = torch.zeros(2, 3, device=D), torch.zeros(2, 3, device=D)
    mean + torch.randn_like(mean) * (0.5 * log_var).exp()


def diffusion_schedule_left():
    betas = torch.linspace(1e-4, 0.02, 10)
    t = torch.randint(0, 10, (4,), device=D)
    betas[t]  # raises RuntimeError: indices should be either on cpu


def diffusion_schedule_gathered():
    alphas = torch.linspace(1e-4, 0.02, 10).cumprod(0)
    t = torch.randint(0, 10, (4,), device=D)
    alphas.gather(-1, t)  # raises RuntimeError: same device


def diffusion_schedule_moved():
    alphas = torch.linspace(1e-4, 0.02, 10).cumprod(0).to(D)
    t = torch.randint(0, 10, (4,), device=D)
    alphas[t].view(-1, 1) * torch.randn(4, 3, device=D)


def time_embedding():
    t = torch.tensor([1, 5], device=D)
    frequencies = torch.exp(torch.arange(4) * -(math.log(10000) / 3))
    t[:, None] * frequencies[None]  # raises RuntimeError: two devices


def normalised_images():
    mean = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    images = torch.rand(2, 3, 4, 4, device=D)
    images - mean  # raises RuntimeError: two devices


def mixup_by_a_host_permutation():
    x, y = torch.randn(4, 3, device=D), torch.tensor([0, 1, 1, 0], device=D)
    order = torch.randperm(4)
    weight = np.random.beta(0.2, 0.2)
    x = weight * x + (1 - weight) * x[order]  # syncs
    y[order]  # syncs


def mixup_by_a_device_permutation():
    x, y = torch.randn(4, 3, device=D), torch.tensor([0, 1, 1, 0], device=D)
    order = torch.randperm(x.size(0), device=x.device)
    weight = torch.distributions.Beta(0.2, 0.2).sample()
    x = weight * x + (1 - weight) * x[order]
    y[order]


def focal_weights():
    alpha = torch.tensor([0.25, 0.75])
    targets = torch.tensor([0, 1, 1], device=D)
    alpha[targets]  # raises RuntimeError: indices should be either on cpu


def margin_logits():
    cosine = torch.randn(3, 4, device=D)
    labels = torch.tensor([0, 1, 2], device=D)
    onehot = torch.zeros(cosine.size())
    onehot.scatter_(1, labels.view(-1, 1), 0.5)  # raises RuntimeError: same device


def centers_updated_on_the_host():
    centers = torch.zeros(4, 8)
    features, labels = torch.randn(3, 8, device=D), torch.tensor([0, 1, 2], device=D)
    (features - centers.index_select(0, labels)).pow(2).sum()  # raises RuntimeError: same device


def teacher_left():
    teacher, student = nn.Linear(8, 4).eval(), nn.Linear(8, 4).to(D)
    x = torch.randn(2, 8, device=D)
    student(x)
    with torch.no_grad():
        teacher(x)  # raises RuntimeError: same device


def distilled():
    teacher, student = nn.Linear(8, 4).eval().to(D), nn.Linear(8, 4).to(D)
    x = torch.randn(2, 8, device=D)
    with torch.no_grad():
        soft = teacher(x).softmax(1)
    F.kl_div(student(x).log_softmax(1), soft, reduction="batchmean").backward()


def replay_buffer():
    policy = nn.Linear(3, 2).to(D)
    memory = [(np.ones(3, dtype=np.float32), 1, 0.5) for _ in range(8)]
    states, actions, rewards = zip(*random.sample(memory, 4), strict=True)
    states = torch.from_numpy(np.stack(states)).to(D)
    actions = torch.tensor(actions).to(D)
    rewards = torch.tensor(rewards)
    q = policy(states).gather(1, actions[:, None]).squeeze(1)
    F.smooth_l1_loss(q, rewards)  # raises RuntimeError: two devices


def action_into_the_environment():
    policy = nn.Linear(3, 2).to(D)
    action = policy(torch.randn(1, 3, device=D)).argmax()
    np.zeros(2)[action]  # syncs


def action_as_an_array():
    policy = nn.Linear(3, 2).to(D)
    policy(torch.randn(1, 3, device=D)).argmax(1).numpy()  # raises TypeError: can't convert cuda:0


def advantages():
    values = torch.randn(4, device=D)
    rewards = torch.ones(4)
    advantage = torch.zeros(4, device=D)
    for t in reversed(range(3)):
        advantage[t] = rewards[t] + 0.9 * values[t + 1] - values[t]
    advantage.mean()


def returns_built_from_numbers():
    values = torch.randn(4, device=D)
    returns = torch.tensor([values[i] * 0.9 for i in range(4)])  # syncs
    returns - values  # raises RuntimeError: two devices


def decoder_first_input():
    table, cell = nn.Embedding(5, 4).to(D), nn.GRUCell(4, 4).to(D)
    hidden = torch.zeros(2, 4, device=D)
    token = torch.zeros(2, dtype=torch.long)
    for _ in range(2):
        hidden = cell(table(token), hidden)  # raises RuntimeError: same device


def greedy_decoding():
    table, cell, head = nn.Embedding(5, 4).to(D), nn.GRUCell(4, 4).to(D), nn.Linear(4, 5).to(D)
    hidden = torch.zeros(2, 4, device=D)
    token = hidden.new_zeros(2, dtype=torch.long)
    tokens = []
    for _ in range(3):
        hidden = cell(table(token), hidden)
        token = head(hidden).argmax(1)
        tokens.append(token)
        if (token == 4).all():  # syncs
            break
    torch.stack(tokens, 1)


def cache_of_keys():
    cache = torch.zeros(1, 2, 8, 4)
    key = torch.randn(1, 2, 1, 4, device=D)
    cache[:, :, 0:1] = key  # syncs
    torch.cat([cache[:, :, :1], key], 2)  # raises RuntimeError: same device


def causal_mask_made_each_time():
    scores = torch.randn(1, 4, 4, device=D)
    mask = torch.tril(torch.ones(4, 4))
    scores.masked_fill(mask == 0, float("-inf"))  # raises RuntimeError: expected self and mask


def padding_mask_from_lengths():
    lengths = torch.tensor([2, 3], device=D)
    mask = torch.arange(4)[None] < lengths[:, None]  # raises RuntimeError: two devices
    mask.any()


def padding_mask_from_lengths_on_the_device():
    lengths = torch.tensor([2, 3], device=D)
    mask = torch.arange(4, device=lengths.device)[None] < lengths[:, None]
    torch.randn(2, 4, device=D)[mask].mean()  # syncs


def message_passing():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x = torch.randn(3, 4, device=D)
    messages = x[edges[0]]  # syncs
    torch.zeros_like(x).index_add_(0, edges[1], messages)  # raises RuntimeError: same device


def message_passing_on_the_device():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]]).to(D)
    x = torch.randn(3, 4, device=D)
    out = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
    degree = torch.zeros(3, device=D).scatter_add_(0, edges[1], torch.ones(3, device=D))
    out / degree[:, None]


def fisher_information():
    model = nn.Linear(3, 2).to(D)
    fisher = {name: torch.zeros(p.shape) for name, p in model.named_parameters()}
    model(torch.randn(2, 3, device=D)).sum().backward()
    for name, p in model.named_parameters():
        fisher[name] += p.grad**2  # raises RuntimeError: two devices


def fisher_penalty():
    model = nn.Linear(3, 2).to(D)
    anchors = {name: p.detach().clone() for name, p in model.named_parameters()}
    sum(((p - anchors[name]) ** 2).sum() for name, p in model.named_parameters()).backward()


def kmeans_assignment():
    points = torch.randn(10, 2, device=D)
    centers = torch.randn(3, 2)
    torch.cdist(points, centers)  # raises RuntimeError: same device


def matched_on_the_host():
    cost = torch.rand(3, 3, device=D)
    rows = cost.cpu().numpy().argmin(1)  # syncs
    cost[torch.arange(3), torch.as_tensor(rows)]  # syncs


def boxes_and_scores():
    boxes, scores = torch.rand(4, 4, device=D), torch.rand(4)
    boxes[scores.argsort(descending=True)]  # syncs
    boxes * scores[:, None]  # raises RuntimeError: two devices


def confusion_counts():
    matrix = torch.zeros(3, 3, dtype=torch.long, device=D)
    predicted, labels = torch.tensor([0, 1, 2], device=D), torch.tensor([0, 2, 2])
    for p, t in zip(predicted, labels, strict=True):
        matrix[t, p] += 1  # syncs


def metric_lists():
    predictions, labels = [], []
    for _ in range(2):
        predictions.extend(torch.randn(4, device=D).sigmoid().cpu().tolist())  # syncs
        labels += torch.zeros(4).tolist()
    np.mean(np.array(predictions) > 0.5)


def metric_lists_of_tensors():
    predictions = [torch.randn(4, device=D) for _ in range(2)]
    np.concatenate(predictions)  # raises TypeError: can't convert cuda:0


def epoch_with_everything():
    torch.manual_seed(0)
    random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(16, 8), torch.randint(0, 4, (16,)))
    train, test = torch.utils.data.random_split(data, [12, 4])
    loader = DataLoader(train, batch_size=4, shuffle=True, pin_memory=device.type == "cuda", drop_last=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    for _ in range(2):
        model.train()
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        schedule.step()
        model.eval()
        with torch.inference_mode():
            right = sum((model(x.to(device)[None]).argmax(1) == y).sum().item() for x, y in test)  # syncs
        assert right >= 0 and math.isfinite(total.item())  # syncs


def accumulated_and_averaged():
    model = nn.Linear(8, 4).to(D)
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters())
    for index, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(8, 8), torch.zeros(8).long()), batch_size=2)):
        loss = F.cross_entropy(model(x.to(D)), y.to(D)) / 2
        loss.backward()
        if (index + 1) % 2 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for a, p in zip(average, model.parameters(), strict=True):
                    a.mul_(0.9).add_(p, alpha=0.1)


def batch_norm_statistics_updated():
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).to(D)
    torch.optim.swa_utils.update_bn([torch.randn(4, 8)], model, device=torch.device(D))  # syncs
    torch.optim.swa_utils.update_bn([torch.randn(4, 8)], model)


batch_norm_statistics_updated.expects = ("RuntimeError", "same device", "[torch.randn(4, 8)], model)")


def label_out_of_range():
    logits = torch.randn(2, 3, device=D)
    F.cross_entropy(logits, torch.tensor([0, 3], device=D))  # raises RuntimeError: device-side assert triggered


def token_out_of_range():
    nn.Embedding(5, 2).to(D)(torch.tensor([5], device=D))  # raises RuntimeError: device-side assert triggered


def gather_out_of_range():
    torch.randn(2, 3, device=D).gather(1, torch.tensor([[3]], device=D))  # raises RuntimeError: device-side assert


def index_out_of_range():
    torch.randn(2, 3, device=D)[torch.tensor([2], device=D)]  # raises RuntimeError: device-side assert


def number_out_of_range():
    torch.randn(2, 3, device=D)[2]  # fails IndexError: out of bounds


def token_out_of_range_on_the_host():
    nn.Embedding(5, 2)(torch.tensor([5]))  # fails IndexError: out of range


def probability_out_of_range():
    F.binary_cross_entropy(torch.tensor([1.5], device=D), torch.ones(1, device=D))  # raises RuntimeError: device-side


def integer_matmul():
    a = torch.ones(2, 2, dtype=torch.long, device=D)
    a @ a  # raises RuntimeError: not implemented for 'Long'


def not_positive_definite():
    torch.linalg.cholesky(-torch.eye(2, device=D))  # fails _LinAlgError: positive-definite


def shape_mistake():
    torch.randn(2, 3, device=D) @ torch.randn(2, 3, device=D)  # fails RuntimeError: shapes cannot be multiplied


def autocast_leaves_the_host_alone():
    with torch.autocast(D, dtype=torch.float16):
        host = torch.randn(2, 2) @ torch.randn(2, 2)
        device = torch.randn(2, 2, device=D) @ torch.randn(2, 2, device=D)
    assert host.dtype is torch.float32 and device.dtype is torch.float16


def host_autocast_leaves_the_device_alone():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        host = torch.randn(2, 2) @ torch.randn(2, 2)
        device = torch.randn(2, 2, device=D) @ torch.randn(2, 2, device=D)
    assert host.dtype is torch.bfloat16 and device.dtype is torch.float32


def autocast_decorator_and_state():
    @torch.autocast(device_type=D, dtype=torch.bfloat16)
    def forward(x, w):
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.bfloat16
        return x @ w

    assert forward(torch.randn(2, 2, device=D), torch.randn(2, 2, device=D)).dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("cuda")


class Cast(torch.autograd.Function):
    """A Function that wants float32."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        assert x.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return grad * 2


def function_under_autocast():
    x = torch.randn(2, 2, device=D, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        y = Cast.apply(x @ x)
    assert y.dtype is torch.float32
    y.sum().backward()


def inplace_under_autocast():
    out = torch.zeros(2, 2, device=D)
    with torch.autocast(D, dtype=torch.float16):
        half = torch.randn(2, 2, device=D) @ torch.randn(2, 2, device=D)
        out += half
        torch.addmm(out, half, half, out=torch.empty(2, 2, device=D))  # raises RuntimeError
