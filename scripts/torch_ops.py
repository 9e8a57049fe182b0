"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# attention_cases.cc


def attention(q, k, v, *rest, heads, kv_heads, causal, window, masked, lengths):
    apart = [x.unflatten(2, (n, -1)).transpose(1, 2) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))]
    t, s = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
    seen = torch.ones(len(t), len(s), dtype=torch.bool)
    if causal:
        seen = seen & (s <= t)
    if window:
        seen = seen & (s > t - window)
    if lengths:
        seen = seen & (s < rest[-1][:, None, None, None])
    mask = torch.zeros((), dtype=q.dtype).masked_fill(~seen, -torch.inf)
    if masked:
        mask = mask + (rest[0] if rest[0].is_floating_point() else
                       torch.zeros((), dtype=q.dtype).masked_fill(~rest[0], -torch.inf))
    none = (mask == -torch.inf).all(-1, keepdim=True)  # queries that see no key get zeros
    mask = mask.expand(len(q), heads, len(t), len(s)).masked_fill(none, 0)
    with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
        y = F.scaled_dot_product_attention(*apart, attn_mask=mask, enable_gqa=True)
    return y.masked_fill(none, 0).transpose(1, 2).flatten(2)


causal_attention = attention


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


def layer_norm(x, gamma, beta):
    return F.layer_norm(x, gamma.shape, gamma, beta)


def rms_norm(x, gamma):
    return F.rms_norm(x, gamma.shape, gamma, eps=1e-6)


def batch_norm(x, gamma, beta):
    return channels_last(F.batch_norm(channels_first(x), None, None, gamma, beta, training=True))


def batch_norm_inference(x, gamma, beta, mean, variance):
    # Not F.batch_norm: it gives moments no gradient.
    return (x - mean) / (variance + 1e-5).sqrt() * gamma + beta


# recurrent_cases.cc


def recurrence(module, x, w, u, b, b_hidden, states, rest, reverse, lengths):
    """y and the last states of one direction; a reversed one is the second of two."""
    net = module(x.shape[2], u.shape[0], batch_first=True, bidirectional=reverse).double()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    values = dict(zip((name + "_reverse" * reverse for name in names), (w.T, u.T, b, b_hidden)))
    states = [torch.stack([torch.zeros_like(s)] * reverse + [s]) for s in states]
    given = x
    if lengths:
        given = torch.nn.utils.rnn.pack_padded_sequence(x, rest[-1], batch_first=True, enforce_sorted=False)
    first = tuple(states) if len(states) > 1 else states[0]
    y, last = torch.func.functional_call(net, values, (given, first))
    if lengths:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
    last = last if len(states) > 1 else (last,)
    return (y[..., -u.shape[0]:], *(s[-1] for s in last))


def lstm(x, w, u, b, b_hidden, h, c, *rest, reverse, lengths):
    return recurrence(torch.nn.LSTM, x, w, u, b, b_hidden, (h, c), rest, reverse, lengths)


def gru(x, w, u, b, b_hidden, h, *rest, reverse, lengths):
    return recurrence(torch.nn.GRU, x, w, u, b, b_hidden, (h,), rest, reverse, lengths)


# loss_cases.cc

mse_loss, l1_loss, huber_loss, smooth_l1_loss = F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss


def reduced(losses, reduction):
    return losses.mean() if reduction == "mean" else losses


def hinge_loss(p, t, reduction):
    return reduced((1 - t * p).relu(), reduction)


def softmax_cross_entropy(x, t, reduction):
    return reduced(-(t * x.log_softmax(-1)).sum(-1), reduction)


def binary_cross_entropy_with_logits(x, t, pos_weight, reduction):
    return F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(pos_weight), reduction=reduction)


def sigmoid_focal_loss(x, t, alpha, gamma, reduction):
    """As torchvision.ops has it."""
    p = x.sigmoid()
    losses = F.binary_cross_entropy_with_logits(x, t, reduction="none") * (1 - (p * t + (1 - p) * (1 - t))) ** gamma
    return reduced((alpha * t + (1 - alpha) * (1 - t)) * losses if alpha >= 0 else losses, reduction)


def kl_div(x, t, log_target, reduction):
    return reduced(F.kl_div(x, t, reduction="none", log_target=log_target), reduction)


def dice_loss(p, t, per_channel):
    """As monai.losses.DiceLoss, with a ratio for each sample or each of its channels."""
    axes = tuple(range(1, p.dim() - 1 if per_channel else p.dim()))
    return (1 - (2 * (p * t).sum(axes) + 1) / (p.sum(axes) + t.sum(axes) + 1)).mean()


def cosine_similarity(a, b, axis):
    return F.cosine_similarity(a, b, dim=axis)


def weighted_cross_entropy(x, labels, smoothing):
    weights = 1 + torch.arange(x.shape[1], dtype=x.dtype) / 2
    return F.cross_entropy(x, labels.long(), weight=weights, label_smoothing=smoothing, reduction="none")


def ctc_loss(x, labels, logit_lengths, label_lengths, blank):
    log_probs = x.log_softmax(2).transpose(0, 1)
    return F.ctc_loss(log_probs, labels, logit_lengths, label_lengths, blank=blank, reduction="none")


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


# shapes_cases.cc

tril, triu, broadcast_matmul = torch.tril, torch.triu, torch.matmul


def rows_of(x, axis, index):
    return x.index_select(axis, torch.as_tensor(list(index), dtype=torch.long))


def pad(x, pads, mode):
    pairs = list(zip(pads[::2], pads[1::2]))
    if mode == "constant":
        return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=0.5)
    for axis, pair in enumerate(pairs):
        x = rows_of(x, axis, np.pad(np.arange(x.shape[axis]), pair, mode=mode))
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
        x = rows_of(x, axis, range(x.shape[axis])[slice(*slices[3 * axis : 3 * axis + 3])])
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


# linear_algebra_cases.cc: complex numbers have a last axis of size 2 in Belfry


def identity_like(x):
    return x.shape[-1] * torch.eye(x.shape[-1], dtype=x.dtype)


def cholesky(x):
    return torch.linalg.cholesky(x @ x.mT + identity_like(x))


def cholesky_solve(x, b):
    return torch.cholesky_solve(b, cholesky(x))


def right_sides(a, b):
    """b as matrices, and whether it was vectors."""
    vectors = b.ndim == a.ndim - 1
    return (b[..., None] if vectors else b), vectors


def solve(a, b):
    b, vectors = right_sides(a, b)
    x = torch.linalg.solve(a + 3 * identity_like(a), b)
    return x[..., 0] if vectors else x


def triangular_solve(a, b, upper, transpose):
    b, vectors = right_sides(a, b)
    a = a + 3 * identity_like(a)
    x = torch.linalg.solve_triangular(a.mT if transpose else a, b, upper=upper != transpose)
    return x[..., 0] if vectors else x


def complex_of(x):
    return torch.complex(x[..., 0], x[..., 1])


def parts_of(z):
    return torch.stack((z.real, z.imag), -1)


def fft(x, n, axis, norm):
    return parts_of(torch.fft.fft(complex_of(x), n or None, axis, norm))


def ifft(x, n, axis, norm):
    return parts_of(torch.fft.ifft(complex_of(x), n or None, axis, norm))


def rfft(x, n, axis, norm):
    return parts_of(torch.fft.rfft(x, n or None, axis, norm))


def irfft(x, n, axis, norm):
    return torch.fft.irfft(complex_of(x), n or None, axis, norm)


def complex_mul(x, y):
    return parts_of(complex_of(x) * complex_of(y))
