"""The model of examples/gpt.cc in PyTorch."""
import torch
import torch.nn.functional as F
from torch import nn

TOKENS, TIME, LAYERS, HEADS, WIDTH = 65, 64, 4, 4, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm0 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.fc = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        y = self.norm0(x)
        later = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
        x = x + self.attention(y, y, y, attn_mask=later, is_causal=True, need_weights=False)[0]
        return x + self.fc(self.norm1(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(TIME, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.norm(self.blocks(self.tokens(tokens) + self.positions))
        return F.linear(x, self.tokens.weight)  # the output shares the table


def loss(model, tokens, label):
    return F.cross_entropy(model(tokens).flatten(0, 1), label.flatten())
