"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import functools

import torch
import torch.nn.functional as F

# standard_cases.cc

relu, exp, log, sigmoid, tanh, sqrt = torch.relu, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.sqrt
silu, matmul = F.silu, torch.matmul


def gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


def reduce_sum(x, axis):
    return x.sum(axis)


# indexing_cases.cc


def reduce_max(x, axes):
    return x.amax(axes)


def reduce_min(x, axes):
    return x.amin(axes)


def reduce_prod(x, axes):
    for axis in sorted(axes, reverse=True):
        x = functools.reduce(torch.mul, x.unbind(axis))  # x.prod() divides, so its second gradient is less exact
    return x


def argmax(x, axis):
    return x.argmax(axis)


def argmin(x, axis):
    return x.argmin(axis)


def take(x, ids, axis):
    rows = x.index_select(axis, ids.reshape(-1).long())
    return rows.reshape(x.shape[:axis] + ids.shape + x.shape[axis + 1 :])


def take_along_axis(x, ids, axis):
    return torch.take_along_dim(x, ids, axis)


def gather_nd(x, ids):
    return x[tuple(ids.long().T)]


def scatter_add(x, ids, updates, axis):
    return x.index_add(axis, ids.long(), updates)


def segment_sum(x, ids, segments):
    return torch.zeros(segments, x.shape[1], dtype=x.dtype).index_add(0, ids.long(), x)


def segment_mean(x, ids, segments):
    counts = torch.bincount(ids.long(), minlength=segments).clamp(min=1)
    return segment_sum(x, ids, segments) / counts[:, None].to(x.dtype)


def segment_max(x, ids, segments):
    none = torch.full((segments, x.shape[1]), -torch.inf, dtype=x.dtype)
    return none.scatter_reduce(0, ids.long()[:, None].expand_as(x), x, "amax")


def top_k(x, k, smallest):
    return tuple(torch.topk(x, k, largest=not smallest))


def cumsum(x, axis, exclusive, reverse):
    y = x.flip(axis) if reverse else x
    y = y.cumsum(axis) - y if exclusive else y.cumsum(axis)
    return y.flip(axis) if reverse else y


def one_hot(labels, depth):
    return F.one_hot(labels, depth)
