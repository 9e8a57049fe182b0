"""The program of examples/unet.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

LEVELS, WIDTH = 2, 16


def two_convs(channels, filters):
    layers = []
    for inputs in (channels, filters):
        layers += [nn.Conv2d(inputs, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
    return nn.Sequential(*layers)


class Up(nn.Module):
    def __init__(self, filters, bilinear):
        super().__init__()
        if bilinear:
            self.enlarge = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"),
                                         nn.Conv2d(2 * filters, filters, 1))
        else:
            self.enlarge = nn.ConvTranspose2d(2 * filters, filters, 2, stride=2)
        self.convs = two_convs(2 * filters, filters)

    def forward(self, x, found):
        return self.convs(torch.cat([found, self.enlarge(x)], 1))


class UNet(nn.Module):
    def __init__(self, bilinear=False):
        super().__init__()
        self.down = nn.ModuleList(two_convs(1 if i == 0 else WIDTH << (i - 1), WIDTH << i) for i in range(LEVELS))
        self.bottom = two_convs(WIDTH << (LEVELS - 1), WIDTH << LEVELS)
        self.up = nn.ModuleList(Up(WIDTH << i, bilinear) for i in reversed(range(LEVELS)))
        self.head = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x):
        found = []
        for level in self.down:
            found.append(level(x))
            x = F.max_pool2d(found[-1], 2)
        x = self.bottom(x)
        for level in self.up:
            x = level(x, found.pop())
        return torch.sigmoid(self.head(x))


def dice_loss(predictions, targets, smooth=1):
    p, t = predictions.flatten(1), targets.flatten(1)
    return (1 - (2 * (p * t).sum(1) + smooth) / (p.sum(1) + t.sum(1) + smooth)).mean()


def loss(model, image, label, noise=0.5):
    strokes = (image > 0.5).to(image.dtype)
    return dice_loss(model(image + noise * torch.randn_like(image)), strokes)


@torch.no_grad()
def evaluate(model, batches, noise):
    model.eval()
    both = total = 0
    for image, _ in batches:
        strokes = image > 0.5
        drawn = model(image + noise * torch.randn_like(image)) > 0.5
        both += (drawn & strokes).sum().item()
        total += drawn.sum().item() + strokes.sum().item()
    model.train()
    return 2 * both / total


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--up", choices=("transpose", "bilinear"), default="transpose")
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor()), batch_size=64, shuffle=train)
        for train in (True, False)}
    model = UNet(args.up == "bilinear")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for image, label in batches[True]:
            optimizer.zero_grad()
            value = loss(model, image, label, args.noise)
            value.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {value.item():.4f}, dice {evaluate(model, batches[False], args.noise):.4f}")


if __name__ == "__main__":
    main()
