"""The program of examples/pointnet.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

POINTS, SIDE = 64, 28


class Clouds(torch.utils.data.Dataset):
    """Clouds of the bright pixels of digits."""

    def __init__(self, digits, train):
        self.digits, self.train = digits, train

    def __len__(self):
        return len(self.digits)

    def __getitem__(self, i):
        random = None if self.train else torch.Generator().manual_seed(i)
        pixels, label = self.digits[i]
        bright = (pixels[0] > 0.5).nonzero()
        if not len(bright):
            bright = torch.full((1, 2), SIDE // 2)
        chosen = bright[torch.randint(len(bright), (POINTS,), generator=random)].flip(1) / 14 - 1
        jitter = 0.035 if self.train else 0
        return chosen + jitter * (2 * torch.rand(POINTS, 2, generator=random) - 1), label


class Layer(nn.Module):
    """A linear layer with batch norm and ReLU. Points share it."""

    def __init__(self, inputs, units):
        super().__init__()
        self.fc = nn.Linear(inputs, units, bias=False)
        self.bn = nn.BatchNorm1d(units)

    def forward(self, x):
        x = self.fc(x)
        return F.relu(self.bn(x.flatten(0, -2)).view_as(x))


class Transform(nn.Module):
    """A matrix for each cloud: at first the identity."""

    def __init__(self, k):
        super().__init__()
        self.k = k
        self.shared = nn.Sequential(Layer(k, 32), Layer(32, 128))
        self.fc0 = Layer(128, 64)
        self.matrix = nn.Linear(64, k * k)
        nn.init.zeros_(self.matrix.weight)
        nn.init.zeros_(self.matrix.bias)

    def forward(self, x):
        x = self.fc0(self.shared(x).amax(1))
        return self.matrix(x).view(-1, self.k, self.k) + torch.eye(self.k).to(x)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = Transform(2)
        self.shared0 = Layer(2, 32)
        self.features = Transform(32)
        self.shared1 = Layer(32, 64)
        self.shared2 = Layer(64, 256)
        self.fc0 = Layer(256, 128)
        self.dropout = nn.Dropout(0.3)
        self.fc1 = nn.Linear(128, 10)

    def forward(self, points):
        """Returns logits, and how far the turn of the features is from an orthogonal matrix."""
        x = self.shared0(points @ self.input(points))
        turn = self.features(x)
        x = self.shared2(self.shared1(x @ turn)).amax(1)
        logits = self.fc1(self.dropout(self.fc0(x)))
        apart = turn @ turn.transpose(1, 2) - torch.eye(32).to(x)
        return logits, apart.square().sum((1, 2)).mean()


def loss(model, points, label):
    logits, skew = model(points)
    return F.cross_entropy(logits, label) + 0.001 * skew


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    right = sum((model(points)[0].argmax(1) == label).sum().item() for points, label in batches)
    model.train()
    return right / len(batches.dataset)


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        Clouds(datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor()), train),
        batch_size=128, shuffle=train) for train in (True, False)}
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for points, label in batches[True]:
            optimizer.zero_grad()
            value = loss(model, points, label)
            value.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {value.item():.4f}, accuracy {evaluate(model, batches[False]):.4f}")


if __name__ == "__main__":
    main()
