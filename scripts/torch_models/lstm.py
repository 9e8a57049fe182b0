"""The program of examples/lstm.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

CHARACTERS, WIDTH, HIDDEN, TIME, WINDOWS = 65, 64, 256, 64, 3000


class Text(torch.utils.data.Dataset):
    """Windows of a text, and the characters that follow."""

    def __init__(self, path, train):
        text = open(path).read()
        self.characters = sorted(set(text))
        index = {character: i for i, character in enumerate(self.characters)}
        tokens = torch.tensor([index[character] for character in text])
        cut = len(tokens) * 9 // 10
        self.tokens = tokens[:cut] if train else tokens[cut:]
        self.train = train

    def __len__(self):
        return WINDOWS if self.train else (len(self.tokens) - 1) // TIME

    def __getitem__(self, i):
        first = torch.randint(len(self.tokens) - TIME, ()) if self.train else i * TIME
        return self.tokens[first : first + TIME], self.tokens[first + 1 : first + TIME + 1]


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.layer0 = nn.LSTM(WIDTH, HIDDEN, batch_first=True)
        self.layer1 = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(HIDDEN, CHARACTERS)

    def forward(self, tokens, states=(None, None)):
        x, state0 = self.layer0(self.characters(tokens), states[0])
        x, state1 = self.layer1(self.dropout(x), states[1])
        return self.head(self.dropout(x.flatten(0, 1))), (state0, state1)


def loss(model, tokens, label):
    return F.cross_entropy(model(tokens)[0], label.flatten())


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    total = sum(len(tokens) * loss(model, tokens, label).item() for tokens, label in batches)
    model.train()
    return total / len(batches.dataset)


@torch.no_grad()
def sample(model, characters, length=200):
    model.eval()
    token, states, text = torch.zeros(1, 1, dtype=torch.long), (None, None), []
    for _ in range(length):
        logits, states = model(token, states)
        token = torch.multinomial(logits.softmax(1), 1)
        text.append(characters[token.item()])
    model.train()
    return "".join(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    batches = {train: torch.utils.data.DataLoader(
        Text(f"{args.data_dir}/input.txt", train), batch_size=32, shuffle=train, drop_last=train)
        for train in (True, False)}
    model = Lstm()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for tokens, label in batches[True]:
            optimizer.zero_grad()
            loss(model, tokens, label).backward()
            optimizer.step()
        print(f"epoch {epoch}: test loss {evaluate(model, batches[False]):.4f}")
        print(sample(model, batches[True].dataset.characters))


if __name__ == "__main__":
    main()
