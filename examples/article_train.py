"""Train a small image classifier the way the article does. devlint flags what is wrong here; train.py is the answer.

    python examples/article_train.py
    devlint check examples/article_train.py
"""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

NUM_WORKERS = 0
EPOCHS = 3


class DeviceContext:
    def __init__(self, device=None):
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __enter__(self):
        self.old_default = torch.tensor([]).device
        torch.set_default_tensor_type(torch.cuda.FloatTensor if "cuda" in self.device else torch.FloatTensor)
        return self.device

    def __exit__(self, *args):
        torch.set_default_tensor_type(
            torch.FloatTensor if self.old_default.type == "cpu" else torch.cuda.FloatTensor
        )


class DeviceAwareDataset(Dataset):
    def __init__(self, base_dataset):
        self.base_dataset = base_dataset

    def __getitem__(self, index):
        data, target = self.base_dataset[index]
        return data.to("cuda"), target.to("cuda")

    def __len__(self):
        return len(self.base_dataset)


class Classifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.mean = torch.full((3, 1, 1), 0.5)
        self.blocks = [nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)]
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        assert x.device == next(self.parameters()).device, "input and model are on different devices"
        x = x - self.mean
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x.mean(dim=(2, 3)))


def get_optimized_loader(dataset, batch_size=32):
    return DataLoader(
        dataset, batch_size=batch_size, shuffle=True, pin_memory=True, num_workers=NUM_WORKERS, persistent_workers=True
    )


def make_data(samples=512):
    return TensorDataset(torch.rand(samples, 3, 16, 16), torch.randint(0, 10, (samples,)))


def evaluate(model, loader):
    correct = 0
    for batch in loader:
        images = batch[0].to("cuda")
        labels = batch[1]
        correct += (model(images).argmax(1) == labels).sum()
    return correct.item() / len(loader.dataset)


def train(model, train_loader, test_loader):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler()
    for epoch in range(EPOCHS):
        total_loss = 0
        for batch in train_loader:
            inputs = batch[0].to("cuda")
            labels = batch[1]
            with torch.cuda.amp.autocast():
                outputs = model(inputs)
                loss = criterion(outputs, labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total_loss += loss
        print(f"epoch {epoch}: loss {total_loss / len(train_loader)}, accuracy {evaluate(model, test_loader)}")
    torch.save(model.state_dict(), "classifier.pt")


def main():
    if torch.cuda.is_available:
        with DeviceContext() as device:
            model = Classifier().to(device)
            train_loader = get_optimized_loader(make_data())
            test_loader = get_optimized_loader(DeviceAwareDataset(make_data(128)))
            train(model, train_loader, test_loader)


if __name__ == "__main__":
    main()
