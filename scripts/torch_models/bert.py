"""The program of examples/bert.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

CHARACTERS, MASK, PADDING, TOKENS = 65, 65, 66, 67
TIME, SHORTEST, WINDOWS = 64, 16, 3000
LAYERS, HEADS, WIDTH = 2, 4, 128
DROP_RATE, NOT_HIDDEN = 0.1, -100


class MaskedText(torch.utils.data.Dataset):
    """Rows of 16 to 64 characters, some of them hidden."""

    def __init__(self, path, train):
        text = open(path).read()
        index = {character: i for i, character in enumerate(sorted(set(text)))}
        tokens = torch.tensor([index[character] for character in text])
        cut = len(tokens) * 9 // 10
        self.tokens = tokens[:cut] if train else tokens[cut:]
        self.train = train

    def __len__(self):
        return WINDOWS if self.train else len(self.tokens) // TIME

    def __getitem__(self, i):
        random = torch.Generator().manual_seed(i) if not self.train else None
        first = torch.randint(len(self.tokens) - TIME, (), generator=random)
        token, place = self.tokens[first : first + TIME].clone(), torch.arange(TIME)
        length = torch.randint(SHORTEST, TIME + 1, (), generator=random)
        hidden = (torch.rand(TIME, generator=random) < 0.15) & (place < length)
        target = torch.where(hidden, token, NOT_HIDDEN)
        way = torch.randint(10, (TIME,), generator=random)
        token[hidden & (way < 8)] = MASK
        other = torch.randint(CHARACTERS, (TIME,), generator=random)
        token = torch.where(hidden & (way == 8), other, token)
        return torch.where(place < length, token, PADDING), target, length


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm0 = nn.LayerNorm(WIDTH)
        self.fc0 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc1 = nn.Linear(4 * WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROP_RATE)

    def forward(self, x, padding):
        y, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.norm0(x + self.dropout(y))
        return self.norm1(x + self.dropout(self.fc1(F.gelu(self.fc0(x)))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.empty(TIME, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROP_RATE)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.bias = nn.Parameter(torch.zeros(TOKENS))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, length):
        x = self.dropout(self.norm(self.tokens(tokens) + self.places))
        padding = torch.arange(TIME) >= length[:, None]
        for block in self.blocks:
            x = block(x, padding)
        return F.linear(self.head(x), self.tokens.weight, self.bias)  # the output shares the table


def loss(model, tokens, target, length):
    return F.cross_entropy(model(tokens, length).flatten(0, 1), target.flatten(), ignore_index=NOT_HIDDEN)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    right = total = 0
    for tokens, target, length in batches:
        hidden = target != NOT_HIDDEN
        right += (model(tokens, length).argmax(2) == target)[hidden].sum().item()
        total += hidden.sum().item()
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        MaskedText(f"{args.data_dir}/input.txt", train), batch_size=32, shuffle=train, drop_last=train)
        for train in (True, False)}
    model = Bert()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": other, "weight_decay": 0}],
                                  lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01)
    steps = args.epochs * len(batches[True])
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 100, (steps - step) / max(steps - 100, 1)))
    for epoch in range(args.epochs):
        for batch in batches[True]:
            optimizer.zero_grad()
            value = loss(model, *batch)
            value.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss {value.item():.4f}, accuracy {evaluate(model, batches[False]):.4f}")


if __name__ == "__main__":
    main()
