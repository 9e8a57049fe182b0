"""The program of examples/vae.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

CODE = 20


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 16, 3, stride=2)
        self.conv1 = nn.Conv2d(16, 32, 3, stride=2)
        self.mean = nn.Linear(7 * 7 * 32, CODE)
        self.log_variance = nn.Linear(7 * 7 * 32, CODE)
        self.fc = nn.Linear(CODE, 7 * 7 * 32)
        self.up0 = nn.ConvTranspose2d(32, 16, 3, stride=2)
        self.up1 = nn.ConvTranspose2d(16, 1, 3, stride=2)

    def encode(self, image):
        x = F.relu(self.conv0(F.pad(image, (0, 1, 0, 1))))
        x = F.relu(self.conv1(F.pad(x, (0, 1, 0, 1))))
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.mean(x), self.log_variance(x)

    def decode(self, code):
        """The logits of pixels."""
        x = F.relu(self.fc(code)).view(-1, 7, 7, 32).permute(0, 3, 1, 2)
        x = F.relu(self.up0(x)[:, :, :-1, :-1])
        return self.up1(x)[:, :, :-1, :-1]


def losses(model, image):
    mean, log_variance = model.encode(image)
    noise = torch.randn_like(mean)
    logits = model.decode(mean + torch.exp(0.5 * log_variance) * noise)
    reconstruction = F.binary_cross_entropy_with_logits(logits, image, reduction="none").flatten(1).sum(1).mean()
    divergence = 0.5 * (log_variance.exp() + mean.square() - log_variance - 1).sum(1).mean()
    return reconstruction, divergence


def loss(model, image, label):
    return sum(losses(model, image))


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    sums = torch.zeros(2)
    for image, _ in batches:
        sums += len(image) * torch.stack(losses(model, image))
    model.train()
    return sums / len(batches.dataset)


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor()), batch_size=128, shuffle=train)
        for train in (True, False)}
    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for image, label in batches[True]:
            optimizer.zero_grad()
            loss(model, image, label).backward()
            optimizer.step()
        reconstruction, divergence = evaluate(model, batches[False])
        print(f"epoch {epoch}: reconstruction {reconstruction:.2f}, divergence {divergence:.2f}")


if __name__ == "__main__":
    main()
