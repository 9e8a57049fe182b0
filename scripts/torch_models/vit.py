"""The program of examples/vit.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, WIDTH, HEADS, BLOCKS = 32, 4, 64, 4, 4
PATCHES = (SIDE // PATCH) ** 2


class Block(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.norm0 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.fc0 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc1 = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(rate)

    def forward(self, x):
        y = self.norm0(x)
        x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
        z = self.fc1(self.dropout(F.gelu(self.fc0(self.norm1(x)))))
        return x + self.dropout(z)


class Vit(nn.Module):
    def __init__(self, rate=0.0):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(PATCHES + 1, WIDTH))
        self.dropout = nn.Dropout(rate)
        self.blocks = nn.Sequential(*(Block(rate) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, image):
        patches = self.patches(image).flatten(2).transpose(1, 2)
        tokens = self.class_token.expand(len(image), -1, -1)
        x = self.blocks(self.dropout(torch.cat([tokens, patches], 1) + self.places))
        return self.head(self.norm(x[:, 0]))


def loss(model, image, label):
    return F.cross_entropy(model(image), label)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    right = sum((model(image).argmax(1) == label).sum().item() for image, label in batches)
    model.train()
    return right / len(batches.dataset)


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    normalize = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    plain = transforms.Compose([transforms.ToTensor(), normalize])
    changed = transforms.Compose([transforms.RandomCrop(SIDE, padding=4), transforms.RandomHorizontalFlip(), plain])
    batches = {train: torch.utils.data.DataLoader(
        datasets.CIFAR10(args.data_dir, train=train, transform=changed if train else plain),
        batch_size=64, shuffle=train) for train in (True, False)}
    model = Vit(args.dropout)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": other, "weight_decay": 0}],
                                  lr=1e-3, weight_decay=0.05)
    steps = args.epochs * len(batches[True])
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=100),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps - 100, 1))], [100])
    for epoch in range(args.epochs):
        for image, label in batches[True]:
            optimizer.zero_grad()
            value = loss(model, image, label)
            value.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss {value.item():.4f}, accuracy {evaluate(model, batches[False]):.4f}")


if __name__ == "__main__":
    main()
