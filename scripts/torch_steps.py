"""Training steps in PyTorch, for bench_peers: bert, unet and gpt of torch_models/, in the sizes of
bench_peers, the models lstm and gru of train_bench, and models of torchvision.

  torch_steps.py bert|unet|lstm|gru|gpt2|resnet18|vit-s STEPS [THREADS]

Prints JSON: the median time of a step, in milliseconds.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from torch_models import bert, gpt, unet


def bert_step(batch=16):
    """The optimizer, and a function that computes the loss of a batch."""
    bert.LAYERS, bert.WIDTH, bert.TIME = 6, 256, 128
    model = bert.Bert()
    place = torch.arange(bert.TIME)
    tokens = torch.randint(bert.CHARACTERS, (batch, bert.TIME))
    length = torch.randint(bert.TIME // 4, bert.TIME + 1, (batch,))
    hidden = (torch.rand(batch, bert.TIME) < 0.15) & (place < length[:, None])
    target = torch.where(hidden, tokens, bert.NOT_HIDDEN)
    tokens = torch.where(hidden, bert.MASK, torch.where(place < length[:, None], tokens, bert.PADDING))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.99), weight_decay=0.01)
    return optimizer, lambda: bert.loss(model, tokens, target, length)


def unet_step(batch=8, side=64):
    layout = torch.channels_last  # faster than the default
    model = unet.UNet().to(memory_format=layout)
    image = torch.rand(batch, 1, side, side).to(memory_format=layout)
    return torch.optim.Adam(model.parameters(), 1e-3), lambda: unet.loss(model, image, None)


class Text(nn.Module):
    def __init__(self, layers, characters=65, hidden=512):
        super().__init__()
        self.characters = nn.Embedding(characters, hidden)
        self.layers = layers(hidden, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, characters)

    def forward(self, tokens):
        return self.head(self.layers(self.characters(tokens))[0]).flatten(0, 1)


def text_step(layers, batch=32, time=64):
    model = Text(layers)
    tokens, label = torch.randint(65, (2, batch, time))
    return torch.optim.Adam(model.parameters(), 2e-3), lambda: F.cross_entropy(model(tokens), label.flatten())


def gpt2_step(batch=1):
    gpt.TOKENS, gpt.TIME, gpt.LAYERS, gpt.HEADS, gpt.WIDTH = 50257, 256, 12, 12, 768
    model = gpt.Gpt()
    tokens, label = torch.randint(gpt.TOKENS, (2, batch, gpt.TIME))
    return torch.optim.AdamW(model.parameters(), 3e-4), lambda: gpt.loss(model, tokens, label)


def images_step(model, batch, optimizer):
    layout = torch.channels_last
    model = model.to(memory_format=layout)
    image = torch.rand(batch, 3, 224, 224).to(memory_format=layout)
    label = torch.randint(1000, (batch,))
    return optimizer(model.parameters()), lambda: F.cross_entropy(model(image), label)


def resnet18_step(batch=16):
    from torchvision.models import resnet18

    return images_step(resnet18(), batch, lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9))


def vit_s_step(batch=8):
    from torchvision.models import VisionTransformer

    model = VisionTransformer(224, 16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=4 * 384)
    return images_step(model, batch, lambda weights: torch.optim.AdamW(weights, 1e-3))


def main():
    model, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    torch.manual_seed(1)
    optimizer, loss = {
        "bert": bert_step,
        "unet": unet_step,
        "lstm": lambda: text_step(nn.LSTM),
        "gru": lambda: text_step(nn.GRU),
        "gpt2": gpt2_step,
        "resnet18": resnet18_step,
        "vit-s": vit_s_step,
    }[model]()
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
