"""The program of examples/moe.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

PATCH, TOKENS, WIDTH, HIDDEN = 7, 16, 64, 128
EXPERTS, CHOSEN = 8, 2
CAPACITY = TOKENS * CHOSEN * 5 // (EXPERTS * 4)


class ExpertsLinear(nn.Module):
    """The weights of all experts, as one product for each."""

    def __init__(self, inputs, units):
        super().__init__()
        self.weight = nn.Parameter((2 / inputs) ** 0.5 * torch.randn(EXPERTS, inputs, units))
        self.bias = nn.Parameter(torch.zeros(EXPERTS, 1, units))

    def forward(self, x):
        return x @ self.weight + self.bias


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.fc0 = ExpertsLinear(WIDTH, HIDDEN)
        self.fc1 = ExpertsLinear(HIDDEN, WIDTH)

    def forward(self, x):
        """Returns what the experts make of x, and whether they have equally much to do."""
        chances = self.gate(x).softmax(-1)
        best, indices = chances.topk(CHOSEN)
        gates = best / best.sum(-1, keepdim=True)

        # The place of each choice if the queues of all experts are put end to end.
        expert = indices.transpose(1, 2).flatten(1)
        mask = F.one_hot(expert, EXPERTS)
        turn = ((mask.cumsum(1) - mask) * mask).sum(2)
        room = turn < CAPACITY
        place = torch.where(room, expert * CAPACITY + turn, EXPERTS * CAPACITY)

        # To the experts, and back.
        place = place[..., None].expand(-1, -1, WIDTH)
        queues = x.new_zeros(len(x), EXPERTS * CAPACITY + 1, WIDTH).scatter_add(1, place, x.repeat(1, CHOSEN, 1))
        queues = queues[:, :-1].view(-1, EXPERTS, CAPACITY, WIDTH)
        queues = self.fc1(F.relu(self.fc0(queues))).flatten(1, 2)
        each = F.pad(queues, (0, 0, 0, 1)).gather(1, place).view(-1, CHOSEN, TOKENS, WIDTH)
        y = (each * gates.transpose(1, 2)[..., None]).sum(1)

        # The share of tokens whose first choice an expert is, times the gate's mean, in each image.
        first = mask[:, :TOKENS].to(x.dtype)
        balance = EXPERTS * (first.mean(1) * chances.mean(1)).sum(1).mean()
        dropped = 1 - room.to(x.dtype).mean()
        return y, balance, dropped


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(TOKENS, WIDTH))
        self.norm0 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.experts = Mixture()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, image):
        patches = image.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).reshape(-1, TOKENS, PATCH * PATCH)
        x = self.patches(patches) + self.positions
        y = self.norm0(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y, balance, dropped = self.experts(self.norm1(x))
        return self.head(self.norm2(x + y).mean(1)), balance, dropped


def loss(model, image, label):
    logits, balance, _ = model(image)
    return F.cross_entropy(logits, label) + 0.01 * balance


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    sums = torch.zeros(3)
    for image, label in batches:
        logits, balance, dropped = model(image)
        accuracy = (logits.argmax(1) == label).float().mean()
        sums += len(image) * torch.stack([accuracy, balance, dropped])
    model.train()
    return sums / len(batches.dataset)


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor()), batch_size=128, shuffle=train)
        for train in (True, False)}
    model = Moe()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for image, label in batches[True]:
            optimizer.zero_grad()
            loss(model, image, label).backward()
            optimizer.step()
        accuracy, balance, dropped = evaluate(model, batches[False])
        print(f"epoch {epoch}: accuracy {accuracy:.4f}, balance {balance:.3f}, dropped {dropped:.4f}")


if __name__ == "__main__":
    main()
