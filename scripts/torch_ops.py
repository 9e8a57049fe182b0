"""The functions that scripts/compare_with_torch calls for the cases of tests/bench/op_values.

Each has the name of its case. It takes the inputs as tensors of PyTorch, and the options of the case by name, and
returns one tensor or several.
"""
import torch
import torch.nn.functional as F

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
    y = F.scaled_dot_product_attention(*apart, attn_mask=mask, enable_gqa=True)
    return y.masked_fill(none, 0).transpose(1, 2).flatten(2)


causal_attention = attention

# standard_cases.cc

relu, exp, log, sigmoid, tanh, sqrt = torch.relu, torch.exp, torch.log, torch.sigmoid, torch.tanh, torch.sqrt
silu, matmul = F.silu, torch.matmul


def gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


def reduce_sum(x, axis):
    return x.sum(axis)
