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
