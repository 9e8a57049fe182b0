"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import torch
import torch.nn.functional as F

# pointwise_cases.cc

abs, sign, floor, ceil, round = torch.abs, torch.sign, torch.floor, torch.ceil, torch.round
log1p, expm1, erf, hard_swish = torch.log1p, torch.expm1, torch.erf, F.hardswish
maximum, minimum, pow = torch.maximum, torch.minimum, torch.pow


def hard_sigmoid(x):
    return F.relu6(x + 3) / 6  # F.hardsigmoid has no second derivative


def leaky_relu(x, slope):
    return F.leaky_relu(x, slope)


def elu(x, alpha):
    return F.elu(x, alpha)


def softplus(x, beta):
    return F.softplus(x, beta, threshold=1000)


def pow_scalar(x, exponent):
    return x**exponent


def clip(x, low, high):
    return torch.clip(x, low, high)


def truths(a, b):
    return [
        *(a == b, a != b, a < b, a <= b, a > b, a >= b),
        *(torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a)),
        *(torch.isnan(a / b), torch.isfinite(a / b)),
    ]


def where(condition, a, b):
    return torch.where(condition != 0, a, b)


def log_softmax(x, axis):
    return F.log_softmax(x, axis)


def logsumexp(x, axis, kept):
    return torch.logsumexp(x, axis, keepdim=kept)


# standard_cases.cc

relu, exp, log, sigmoid, tanh, sqrt = torch.relu, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.sqrt
silu, matmul = F.silu, torch.matmul


def gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


def reduce_sum(x, axis):
    return x.sum(axis)
