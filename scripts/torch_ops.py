"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import numpy as np
import torch
import torch.nn.functional as F

# standard_cases.cc

relu, exp, log, sigmoid, tanh, sqrt = torch.relu, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.sqrt
silu, matmul = F.silu, torch.matmul


def gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


def reduce_sum(x, axis):
    return x.sum(axis)

# shapes_cases.cc

tril, triu, broadcast_matmul = torch.tril, torch.triu, torch.matmul


def take(x, axis, index):
    return x.index_select(axis, torch.as_tensor(list(index), dtype=torch.long))


def pad(x, pads, mode):
    pairs = list(zip(pads[::2], pads[1::2]))
    if mode == "constant":
        return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=0.5)
    for axis, pair in enumerate(pairs):
        x = take(x, axis, np.pad(np.arange(x.shape[axis]), pair, mode=mode))
    return x


def flip(x, axis):
    return x.flip(axis)


def roll(x, shift, axis):
    return x.roll(shift, axis)


def tile(x, times):
    return x.tile(times)


def repeat_elements(x, times, axis):
    return x.repeat_interleave(times, axis)


def strided_slice(x, slices):
    for axis in range(x.ndim):
        x = take(x, axis, range(x.shape[axis])[slice(*slices[3 * axis : 3 * axis + 3])])
    return x


def stack(*xs, axis):
    return torch.stack(xs, axis)


def moveaxis(x, source, destination):
    return x.moveaxis(source, destination)


def resize(x, size, mode):
    return F.interpolate(x.permute(0, 3, 1, 2), size, mode=mode).permute(0, 2, 3, 1)


def space_to_depth(x, block):
    n, h, w, c = x.shape
    x = x.reshape(n, h // block, block, w // block, block, c).transpose(2, 3)
    return x.reshape(n, h // block, w // block, c * block * block)


def depth_to_space(x, block):
    n, h, w, c = x.shape
    return x.reshape(n, h, w, block, block, -1).transpose(2, 3).reshape(n, h * block, w * block, -1)


def pixel_unshuffle(x, block):
    return F.pixel_unshuffle(x.permute(0, 3, 1, 2), block).permute(0, 2, 3, 1)


def pixel_shuffle(x, block):
    return F.pixel_shuffle(x.permute(0, 3, 1, 2), block).permute(0, 2, 3, 1)


def einsum(*xs, equation):
    return torch.einsum(equation, *xs)
