"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import torch
import torch.nn.functional as F

# standard_cases.cc

relu, exp, log, sigmoid, tanh, sqrt = torch.relu, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.sqrt
silu, matmul = F.silu, torch.matmul


def gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


def reduce_sum(x, axis):
    return x.sum(axis)


# window_cases.cc: images are [n, height, width, channels] in Belfry, filters [out, height, width, in]


def channels_first(x):
    return x.movedim(-1, 1)


def channels_last(x):
    return x.movedim(1, -1)


def padded(x, padding, value=0.0):
    """x with channels first and these pixels around it: [top, bottom, left, right], or [before, after]."""
    sides = [padding[2], padding[3], padding[0], padding[1]] if len(padding) == 4 else padding
    return F.pad(x, sides, value=value)


def conv2d(x, filters, stride, padding, dilation, groups):
    x = padded(channels_first(x), padding)
    return channels_last(F.conv2d(x, channels_first(filters), None, stride, 0, dilation, groups))


def conv2d_transpose(x, filters, stride, padding, output_padding, dilation, groups):
    y = F.conv_transpose2d(channels_first(x), channels_first(filters), None, stride, padding, output_padding, groups,
                           dilation)
    return channels_last(y)


def conv1d(x, filters, stride, padding, dilation, groups):
    x = padded(channels_first(x), padding)
    return channels_last(F.conv1d(x, channels_first(filters), None, stride, 0, dilation, groups))


def max_pool(x, window, stride, padding):
    return channels_last(F.max_pool2d(padded(channels_first(x), padding, -float("inf")), window, stride))


def avg_pool(x, window, stride, padding, count_include_pad):
    def mean(value):
        return F.avg_pool2d(padded(channels_first(value), padding), window, stride)

    y = mean(x)
    return channels_last(y if count_include_pad else y / mean(torch.ones_like(x)))


def group_norm(x, gamma, beta, groups):
    return channels_last(F.group_norm(channels_first(x), groups, gamma, beta))


def instance_norm(x):
    # Not F.instance_norm: in PyTorch 2.15 its gradient of a single image is wrong if channels are last in memory.
    x = channels_first(x)
    return channels_last(F.group_norm(x, x.shape[1]))
