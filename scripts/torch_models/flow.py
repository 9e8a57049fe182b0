"""The program of examples/flow.cc in PyTorch."""
import argparse
import math

import torch
from torch import nn

PIXELS, HIDDEN, LAYERS, MARGIN = 28 * 28, 512, 6, 0.05


class Coupling(nn.Module):
    """One half of the pixels stays, and says how the other is stretched and moved."""

    def __init__(self, i):
        super().__init__()
        self.register_buffer("moved", (torch.arange(PIXELS) + i) % 2)
        self.net = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                                 nn.Linear(HIDDEN, 2 * PIXELS))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def halves(self, x):
        log_scale, shift = self.net((1 - self.moved) * x).chunk(2, 1)
        return self.moved * log_scale.tanh(), self.moved * shift

    def forward(self, x):
        log_scale, shift = self.halves(x)
        return x * log_scale.exp() + shift, log_scale.sum(1)

    def inverse(self, x):
        log_scale, shift = self.halves(x)
        return (x - shift) * torch.exp(-log_scale)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i) for i in range(LAYERS))

    def forward(self, x):
        """Bits per pixel, by the density of x from 0 to 1."""
        x = MARGIN + (1 - 2 * MARGIN) * x
        stretch = -(x.log() + (1 - x).log()).sum(1) + PIXELS * math.log(1 - 2 * MARGIN)
        x = x.logit()
        for layer in self.layers:
            x, stretched = layer(x)
            stretch = stretch + stretched
        log_density = -0.5 * math.log(2 * math.pi) * PIXELS - 0.5 * x.square().sum(1) + stretch
        return 8 - log_density.mean() / (PIXELS * math.log(2))

    def draw(self, count):
        x = torch.randn(count, PIXELS)
        for layer in reversed(self.layers):
            x = layer.inverse(x)
        return (x.sigmoid() - MARGIN) / (1 - 2 * MARGIN)


def loss(model, image, label):
    pixels = image.flatten(1)
    return model((255 * pixels + torch.rand_like(pixels)) / 256)


@torch.no_grad()
def evaluate(model, batches):
    return sum(len(image) * loss(model, image, label).item() for image, label in batches) / len(batches.dataset)


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor()), batch_size=128, shuffle=train)
        for train in (True, False)}
    model = Flow()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(args.epochs):
        for image, label in batches[True]:
            optimizer.zero_grad()
            loss(model, image, label).backward()
            optimizer.step()
        print(f"epoch {epoch}: {evaluate(model, batches[False]):.4f} bits per pixel")


if __name__ == "__main__":
    main()
