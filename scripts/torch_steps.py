"""Training steps of bert and unet in PyTorch, for bench_peers: the models of torch_models/, in the
sizes of PROGRAMS in bench_peers.

  torch_steps.py bert|unet STEPS [THREADS]

Prints JSON: the median time of a step, in milliseconds.
"""
import json
import statistics
import sys
import time

import torch

from torch_models import bert, unet


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


def main():
    model, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    torch.manual_seed(1)
    optimizer, loss = {"bert": bert_step, "unet": unet_step}[model]()
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
