"""Optimizers, checkpoints, mixed precision."""

import copy
import io
import pickle

import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def step(model, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(torch.randn(4, 8, device=D)), torch.zeros(4, dtype=torch.long, device=D))
    loss.backward()
    optimizer.step()


def adagrad_before_the_move():
    model = net()
    optimizer = torch.optim.Adagrad(model.parameters())
    model.to(D)
    F.cross_entropy(model(torch.randn(4, 8, device=D)), torch.zeros(4, dtype=torch.long, device=D)).backward()
    optimizer.step()  # raises RuntimeError: same device


def sgd_before_the_move():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.to(D)
    step(model, optimizer)
    step(model, optimizer)


def adam_state_put_back_by_hand():
    model = net().to(D)
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].cpu()  # syncs
    F.cross_entropy(model(torch.randn(4, 8, device=D)), torch.zeros(4, dtype=torch.long, device=D)).backward()
    optimizer.step()  # raises RuntimeError: same device


def adam_state_loaded_from_the_host():
    model = net().to(D)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)  # syncs
    file.seek(0)
    resumed = torch.optim.AdamW(model.parameters())
    resumed.load_state_dict(torch.load(file, map_location="cpu"))
    step(model, resumed)
    assert all(state["exp_avg"].is_cuda for state in resumed.state.values())
    assert not any(state["step"].is_cuda for state in resumed.state.values())


def parameters_swapped_after_the_optimizer():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[2] = nn.Linear(16, 4)
    step(model, optimizer)


parameters_swapped_after_the_optimizer.expects = ("RuntimeError", "same device", "loss = F.cross_entropy(")


def warm_up_and_schedule():
    model = net().to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    for _ in range(3):
        step(model, optimizer)
        schedule.step()


def plateau_reads_the_loss():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    loss = model(torch.randn(4, 8, device=D)).mean()
    loss.backward()
    optimizer.step()
    schedule.step(loss)  # syncs


def swa_average():
    model = net().to(D)
    average = torch.optim.swa_utils.AveragedModel(model)
    step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    average.update_parameters(model)
    average.update_parameters(model)  # syncs
    average(torch.randn(4, 8, device=D))


def swa_average_on_the_host():
    model = net().to(D)
    average = torch.optim.swa_utils.AveragedModel(model, device="cpu")  # syncs
    average(torch.randn(4, 8, device=D))  # raises RuntimeError: same device


def clipped_with_a_check():
    model = net().to(D)
    model(torch.randn(4, 8, device=D)).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # syncs


def vector_of_parameters_of_two_devices():
    model = net()
    model[0].to(D)
    nn.utils.parameters_to_vector(model.parameters())  # raises TypeError: two parameters on different devices


def sparse_embedding_and_sparse_adam():
    table = nn.Embedding(10, 4, sparse=True).to(D)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 2, 2], device=D)).sum().backward()
        optimizer.step()  # syncs


def rate_as_a_tensor():
    model = net().to(D)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1, device=D), capturable=True)  # syncs
    step(model, optimizer)


def load_on_a_gpu_that_is_not_there():
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:1"), file)  # syncs
    file.seek(0)
    torch.load(file, map_location="cuda:5")  # raises RuntimeError: Attempting to deserialize object on CUDA device 5


def load_remapped():
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:1"), file)  # syncs
    where = []
    for location in (None, {"cuda:1": "cuda:0"}, {"cuda:1": "cpu"}, lambda storage, place: storage, "cuda"):
        file.seek(0)
        where.append(str(torch.load(file, map_location=location).device))
    assert where == ["cuda:1", "cuda:0", "cpu", "cpu", "cuda:0"], where


def load_by_a_function_that_moves():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    loaded = torch.load(file, map_location=lambda storage, place: storage.cuda(0))
    loaded + torch.ones(2, device=D)


def loaded_batch_stays_on_the_host():
    file = io.BytesIO()
    torch.save({"x": torch.randn(4, 8)}, file)
    file.seek(0)
    model = net().to(D)
    batch = torch.load(file)
    model(batch["x"])  # raises RuntimeError: same device


def pickled_and_copied_models():
    model = net().to(D)
    x = torch.randn(4, 8, device=D)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(x).cpu(), copy.deepcopy(model)(x).cpu())  # syncs
    file = io.BytesIO()
    torch.save(model, file)  # syncs
    file.seek(0)
    torch.load(file, weights_only=False)(x)


def rng_state_loaded_on_the_gpu():
    file = io.BytesIO()
    torch.save(torch.get_rng_state(), file)
    file.seek(0)
    state = torch.load(file, map_location=D)
    torch.set_rng_state(state)  # raises TypeError: ByteTensor


def state_dict_assigned_from_the_host():
    model = net().to(D)
    saved = {name: value.cpu() for name, value in model.state_dict().items()}  # syncs
    model.load_state_dict(saved)
    model(torch.randn(4, 8, device=D))
    model.load_state_dict(saved, assign=True)
    model(torch.randn(4, 8, device=D))  # raises RuntimeError: same device


def best_weights_kept_on_the_host():
    model = net().to(D)
    best = copy.deepcopy(model.cpu().state_dict())  # syncs
    model(torch.randn(4, 8, device=D))  # raises RuntimeError: same device
    assert best


def half_outside_autocast():
    model = net().to(D)
    head = nn.Linear(4, 2).to(D)
    with torch.autocast(D, dtype=torch.float16):
        features = model(torch.randn(4, 8, device=D))
    head(features)  # raises RuntimeError: must have the same dtype


def float_again_outside_autocast():
    model = net().to(D)
    head = nn.Linear(4, 2).to(D)
    with torch.autocast(D, dtype=torch.float16):
        features = model(torch.randn(4, 8, device=D))
    head(features.float())


def autocast_types_of_a_vision_model():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.to(D)
    with torch.autocast(D, dtype=torch.float16):
        out = model(torch.randn(2, 3, 8, 8, device=D))
        assert out.dtype is torch.float16
        assert F.softmax(out, 1).dtype is torch.float32
        assert out.mean().dtype is torch.float16
        assert out.sum().dtype is torch.float32
        assert (out + torch.ones(4, device=D)).dtype is torch.float32
        with torch.autocast(D, enabled=False):
            assert (out.float() @ out.float().T).dtype is torch.float32
    out.float().sum().backward()


def autocast_recurrent_and_attention():
    recurrent = nn.LSTM(8, 4, batch_first=True).to(D)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(D)
    x = torch.randn(2, 5, 8, device=D)
    with torch.autocast(D, dtype=torch.float16):
        assert recurrent(x)[0].dtype is torch.float16
        loss = layer(x).float().sum() + recurrent(x)[0].float().sum()
    loss.backward()


def autocast_input_left():
    model = net().to(D)
    with torch.autocast(D, dtype=torch.bfloat16):
        model(torch.randn(4, 8))  # raises RuntimeError: same device


def bfloat16_has_no_numpy():
    model = net().to(D)
    with torch.autocast(D, dtype=torch.bfloat16):
        out = model(torch.randn(4, 8, device=D))
    out.detach().cpu().numpy()  # raises TypeError: BFloat16


def scaler_steps_twice():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D)
    scaler.scale(model(torch.randn(4, 8, device=D)).sum()).backward()
    scaler.step(optimizer)  # syncs
    scaler.step(optimizer)  # raises RuntimeError: step() has already been called since the last update()


def scaler_without_a_backward():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D)
    scaler.scale(torch.ones((), device=D))
    scaler.step(optimizer)  # raises AssertionError: No inf checks were recorded


def scaler_unscales_after_the_step():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D)
    scaler.scale(model(torch.randn(4, 8, device=D)).sum()).backward()
    scaler.step(optimizer)  # syncs
    scaler.unscale_(optimizer)  # raises RuntimeError: unscale_() is being called after step()


def scaler_of_half_weights():
    model = net().to(D).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D)
    scaler.scale(model(torch.randn(4, 8, device=D).half()).float().sum()).backward()
    scaler.step(optimizer)  # raises ValueError: Attempting to unscale FP16 gradients


def scaler_lives_through_infinities():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D, init_scale=4.0)
    scaler.scale(model(torch.randn(4, 8, device=D)).sum() * float("inf")).backward()
    scaler.step(optimizer)  # syncs
    scaler.update()
    assert scaler.get_scale() == 2.0  # syncs


def scaler_saved_and_loaded():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(D)
    scaler.scale(model(torch.randn(4, 8, device=D)).sum()).backward()
    scaler.step(optimizer)  # syncs
    scaler.update()
    torch.amp.GradScaler(D).load_state_dict(scaler.state_dict())  # syncs


def half_model_float_batch():
    model = net().to(D, torch.float16)
    model(torch.randn(4, 8, device=D))  # raises RuntimeError: must have the same dtype


def half_model_half_batch():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 2))
    model.to(D).half()
    model(torch.randn(2, 3, 8, 8, device=D).half()).float().sum().backward()


def double_batch():
    model = net().to(D)
    model(torch.zeros(4, 8, dtype=torch.float64, device=D))  # raises RuntimeError: must have the same dtype


def gradient_put_from_the_host():
    model = net().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros(parameter.shape)  # raises RuntimeError: attempting to assign a gradient
    optimizer.step()


def gradients_averaged_over_two_gpus():
    first, second = net().to("cuda:0"), net().to("cuda:1")
    for model in (first, second):
        model(torch.randn(4, 8, device=model[0].weight.device)).sum().backward()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        a.grad += b.grad  # raises RuntimeError: cuda:0 and cuda:1
