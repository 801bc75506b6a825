"""Train a small image classifier, on pictures of shapes that it draws itself.

    python examples/train.py
    torchrun --nproc-per-node 2 examples/train.py
    python examples/train.py --checkpoint last.pt       # stop it at any time, start it again, and it goes on

Mixed precision, accumulation, clipping, a schedule, evaluation, checkpoints and a progress bar, on any device.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DistributedSampler, TensorDataset

from devlint.runtime import DeviceLoader, TrainStep, distributed, fit, make_loader, seed_everything

SIZE = 16
CLASSES = ("disc", "square", "cross")


def draw(count: int, seed: int) -> TensorDataset:
    """Noisy pictures of one shape each, (count, 1, 16, 16) float32, and which shape it is, (count,) int64."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(len(CLASSES), (count,), generator=generator)
    center = 4 + 8 * torch.rand(count, 2, 1, 1, generator=generator)
    radius = 3 + 2 * torch.rand(count, 1, 1, generator=generator)
    row, column = (torch.stack(torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")) - center).unbind(
        1
    )
    square = torch.maximum(row.abs(), column.abs()) <= radius
    shapes = torch.stack([row**2 + column**2 <= radius**2, square, square & ((row.abs() < 1) | (column.abs() < 1))])
    pictures = shapes[label, torch.arange(count)].float()
    return TensorDataset((pictures + 0.2 * torch.randn(count, SIZE, SIZE, generator=generator)).unsqueeze(1), label)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((1, 1, 1), 0.2))
        self.blocks = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * (SIZE // 2) ** 2, len(CLASSES)))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(pictures - self.mean))


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small image classifier.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--accumulate", type=int, default=2, help="batches to one step of the optimizer")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16", "fp16"])
    parser.add_argument("--device", help="default: the accelerator there is, or the CPU")
    parser.add_argument("--checkpoint", help="a file to save to after each epoch, and to go on from if it is there")
    options = parser.parse_args()

    with distributed(device=options.device) as dist:
        seed_everything(0)
        train, test = draw(options.samples, seed=1), draw(500, seed=2)
        sampler = DistributedSampler(train, dist.world_size, dist.rank, seed=3)
        workers = {"num_workers": 0, "device": dist.device, "batch_size": options.batch_size}
        train_loader = DeviceLoader(make_loader(train, sampler=sampler, **workers), dist.device)
        share = torch.utils.data.Subset(test, range(dist.rank, len(test), dist.world_size))
        test_loader = DeviceLoader(make_loader(share, **workers), dist.device)

        model = dist.wrap(Classifier())
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        steps = options.epochs * -(-len(train_loader) // options.accumulate)
        step = TrainStep(
            model,
            optimizer,
            F.cross_entropy,
            precision=options.precision,
            accumulate=options.accumulate,
            clip_norm=1.0,
            scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 1)),
        )
        history = fit(
            step,
            train_loader,
            epochs=options.epochs,
            eval_loader=test_loader,
            metrics={"accuracy": accuracy},
            checkpoint=options.checkpoint,
            resume=options.checkpoint is not None,
            seed=4,
        )
        if dist.is_main:
            for epoch in history.epochs:
                print(
                    f"epoch {epoch['epoch']:.0f}: loss {epoch['loss']:.4f}, "
                    f"test loss {epoch['eval_loss']:.4f}, accuracy {epoch['eval_accuracy']:.1%}"
                )
            print(f"{history.steps} steps on {dist.world_size} × {dist.device}, {step.precision.name}")


if __name__ == "__main__":
    main()
