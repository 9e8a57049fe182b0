"""Training steps of the models of examples/bert.cc and examples/unet.cc in PyTorch, for bench_peers.

  torch_steps.py bert|unet STEPS [THREADS]

Sizes are those of WORKS in bench_peers. Prints JSON: the median time of a step, in milliseconds.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TOKENS, NOT_HIDDEN, DROP_RATE = 67, -100, 0.1


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm0, self.norm1 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc0, self.fc1 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(DROP_RATE)

    def forward(self, x, seen):
        n, time_, width = x.shape
        q, k, v = self.qkv(x).view(n, time_, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        y = self.out(y.transpose(1, 2).reshape(n, time_, width))
        x = self.norm0(x + self.dropout(y))
        y = self.fc1(F.gelu(self.fc0(x)))
        return self.norm1(x + self.dropout(y))


class Bert(nn.Module):
    def __init__(self, layers, heads, width, time_):
        super().__init__()
        self.table = nn.Embedding(TOKENS, width)
        self.places = nn.Parameter(torch.randn(time_, width) * 0.02)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(DROP_RATE)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.fc, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(TOKENS))

    def forward(self, tokens, lengths):
        seen = torch.arange(tokens.shape[1]) < lengths[:, None]
        x = self.dropout(self.norm(self.table(tokens) + self.places))
        for block in self.blocks:
            x = block(x, seen[:, None, None, :])
        x = self.head_norm(F.gelu(self.fc(x)))
        return F.linear(x, self.table.weight, self.bias)


def bert(batch=16, layers=6, heads=4, width=256, time_=128):
    """The optimizer, and a function that computes the loss of a batch."""
    model = Bert(layers, heads, width, time_)
    tokens = torch.randint(65, (batch, time_))
    lengths = torch.randint(time_ // 4, time_ + 1, (batch,))
    inside = torch.arange(time_) < lengths[:, None]
    hidden = (torch.rand(batch, time_) < 0.15) & inside
    target = torch.where(hidden, tokens, NOT_HIDDEN)
    tokens = torch.where(hidden, 65, torch.where(inside, tokens, 66))

    def loss():
        logits = model(tokens, lengths)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=NOT_HIDDEN)

    return torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.99), weight_decay=0.01), loss


def two_convs(inputs, filters):
    def conv(channels):
        return [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters),
                nn.ReLU(inplace=True)]
    return nn.Sequential(*conv(inputs), *conv(filters))


class UNet(nn.Module):
    def __init__(self, levels, width):
        super().__init__()
        filters = [width << i for i in range(levels + 1)]
        self.down = nn.ModuleList(two_convs(1 if i == 0 else filters[i - 1], filters[i])
                                  for i in range(levels))
        self.bottom = two_convs(filters[levels - 1], filters[levels])
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(filters[i + 1], filters[i], 2, 2)
                                     for i in range(levels))
        self.up = nn.ModuleList(two_convs(2 * filters[i], filters[i]) for i in range(levels))
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        found = []
        for convs in self.down:
            found.append(convs(x))
            x = F.max_pool2d(found[-1], 2)
        x = self.bottom(x)
        for i in reversed(range(len(self.up))):
            x = self.up[i](torch.cat([found[i], self.enlarge[i](x)], 1))
        return self.head(x)


def dice_loss(drawn, strokes):
    def total(x):
        return x.sum((1, 2, 3))
    return (1 - (2 * total(drawn * strokes) + 1) / (total(drawn) + total(strokes) + 1)).mean()


def unet(batch=8, levels=2, width=16, side=64):
    layout = torch.channels_last  # faster than the default
    model = UNet(levels, width).to(memory_format=layout)
    strokes = (torch.rand(batch, 1, side, side) < 0.2).float().to(memory_format=layout)

    def loss():
        noisy = strokes + 0.5 * torch.randn_like(strokes)
        return dice_loss(torch.sigmoid(model(noisy)), strokes)

    return torch.optim.Adam(model.parameters(), 1e-3), loss


def main():
    model, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    torch.manual_seed(1)
    optimizer, loss = {"bert": bert, "unet": unet}[model]()
    times = []
    for _ in range(3 + steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        value.item()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"model": model, "ms": statistics.median(times[3:])}))


if __name__ == "__main__":
    main()
