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
    return F.ctc_loss(x.log_softmax(2).transpose(0, 1), labels, logit_lengths, label_lengths, blank=blank, reduction="none")
