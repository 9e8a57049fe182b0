"""The program of examples/gan.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

NOISE, WIDTH = 64, 16


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(NOISE, 7 * 7 * 2 * WIDTH, bias=False)
        self.bn0 = nn.BatchNorm2d(2 * WIDTH)
        self.up0 = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.up1 = nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1)

    def forward(self, noise):
        x = self.fc(noise).view(-1, 7, 7, 2 * WIDTH).permute(0, 3, 1, 2)
        x = F.relu(self.bn1(self.up0(F.relu(self.bn0(x)))))
        return torch.tanh(self.up1(x))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, WIDTH, 4, stride=2, padding=1)
        self.conv1 = nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(2 * WIDTH)
        self.fc = nn.Linear(7 * 7 * 2 * WIDTH, 1)

    def forward(self, digit):
        x = F.leaky_relu(self.bn(self.conv1(F.leaky_relu(self.conv0(digit), 0.2))), 0.2)
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen, self.disc = Generator(), Discriminator()
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                nn.init.normal_(module.weight, std=0.02)


def loss_of(logits, answer):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, answer))


def loss(model, image, label):
    made = model.gen(torch.randn(len(image), NOISE))
    real, fake = model.disc(2 * image - 1), model.disc(made)
    return {"disc": loss_of(real, 1) + loss_of(fake, 0), "gen": loss_of(fake, 1)}


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    digits = datasets.MNIST(args.data_dir, transform=transforms.ToTensor())
    batches = torch.utils.data.DataLoader(digits, batch_size=128, shuffle=True)
    model = Gan()
    optimizers = {name: torch.optim.Adam(getattr(model, name).parameters(), lr=2e-4, betas=(0.5, 0.999))
                  for name in ("disc", "gen")}
    for epoch in range(args.epochs):
        for image, label in batches:
            for name, optimizer in optimizers.items():
                model.zero_grad()
                losses = loss(model, image, label)
                losses[name].backward()
                optimizer.step()
        print(f"epoch {epoch}: disc {losses['disc'].item():.3f}, gen {losses['gen'].item():.3f}")


if __name__ == "__main__":
    main()
