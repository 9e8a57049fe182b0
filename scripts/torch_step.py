"""Compares one step of a Belfry program with the same step of a PyTorch program.

  build/release/bin/mnist --data_dir=DATA --write_step=step.safetensors

  from torch_step import compare
  print(compare("step.safetensors", Net(), lambda net, image, label: F.cross_entropy(net(image), label)))

The loss gets the fields of the data, images as [n, channels, height, width]; where a model has several
losses, the function returns a dict of them. The module gets the program's weights: the variables of one
shape, in the order in which the program makes them, are the module's parameters of that shape, in
theirs. `torch.randn`, `rand`, `dropout` and others give what the program has drawn, in its order.
"""
import contextlib
import dataclasses
from collections import defaultdict
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors import safe_open


@dataclasses.dataclass
class Distances:
    """The largest differences from PyTorch in f64, each relative to the largest value of its tensor, or of
    all gradients if that one is zero."""

    loss: float
    gradients: dict[str, float]  # by the names of Belfry's variables
    in_f32: float | None = None  # the largest of PyTorch's own f32

    @property
    def worst(self):
        return max(self.gradients, key=self.gradients.get)

    @property
    def most(self):
        return max(self.loss, self.gradients[self.worst])

    def __str__(self):
        worst = self.gradients[self.worst]
        own = "" if self.in_f32 is None else f"; PyTorch in f32 {self.in_f32:.1e}"
        return f"loss {self.loss:.1e}, {len(self.gradients)} gradients at most {worst:.1e} ({self.worst}){own}"


def largest(tensor):
    return float(tensor.detach().double().abs().max()) if tensor.numel() else 0.0


def distance(ours, theirs, scale=None):
    """The largest difference, relative to their largest value or to `scale`; infinite where either is NaN."""
    apart = largest(ours.double() - theirs.double()) / (scale or largest(theirs) or 1)
    return apart if apart == apart else float("inf")


def channels_first(tensor):
    return tensor.permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor


# The axes of kernels and of matrices of layers, which are called W; all other weights have no other order.
AXES = {2: (1, 0), 3: (0, 2, 1), 4: (0, 3, 1, 2)}


def as_torch(name, weight):
    return weight.permute(AXES[weight.dim()]) if name.split("/")[-1] == "W" else weight


class Step:
    """What --write_step wrote."""

    def __init__(self, path):
        self.path = path
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in metadata["order"].split("\n")}
        self.inputs = [channels_first(t) for t in self.named("input").values()]
        self.random = [channels_first(t) for t in self.named("random").values()]
        self.variables = {name: as_torch(name, t) for name, t in self.named("variable").items()}
        self.gradients = {name: as_torch(name, t) for name, t in self.named("gradient").items()}
        self.losses = self.named("loss") or {"": self.tensors["loss"]}
        all_variables = "\n".join(self.variables)
        self.trained = {loss: metadata.get(f"variables/{loss}", all_variables).split("\n") for loss in self.losses}

    def named(self, kind):
        return {name[len(kind) + 1 :]: t for name, t in self.tensors.items() if name.startswith(kind + "/")}

    def parameters_in(self, model):
        """The parameter of each variable."""
        unused = defaultdict(list)
        for name, parameter in model.named_parameters():
            unused[parameter.shape].append((name, parameter))
        found = {}
        for name, value in self.variables.items():
            if not unused[value.shape]:
                raise ValueError(f"the module lacks a parameter {list(value.shape)} for '{name}' of {self.path}")
            found[name] = unused[value.shape].pop(0)[1]
        if more := [name for parameters in unused.values() for name, _ in parameters]:
            raise ValueError(f"{self.path} lacks variables for the parameters {', '.join(more)}")
        return found


@contextlib.contextmanager
def played_back(drawn, dtype):
    """In its context PyTorch draws what Belfry has drawn. At the end all of it must be drawn."""
    left = list(drawn)

    def draw(kind, shape):
        wanted = f"{kind} {list(shape)}"
        drew = f"{'mask' if left[0].dtype == torch.uint8 else 'noise'} {list(left[0].shape)}" if left else "nothing"
        if wanted != drew:
            raise ValueError(f"PyTorch draws {wanted} where Belfry drew {drew}")
        return left.pop(0).to(dtype)

    def dropout(x, p=0.5, training=True, inplace=False):
        return x * draw("mask", x.shape) / (1 - p) if training and p > 0 else x

    def noise(*shape, **_):
        return draw("noise", shape if isinstance(shape[0], int) else shape[0])

    def noise_like(x, **_):
        return draw("noise", x.shape)

    with (mock.patch.object(F, "dropout", dropout),
          mock.patch.multiple(torch, randn=noise, rand=noise, randn_like=noise_like, rand_like=noise_like)):
        yield
    if left:
        raise ValueError(f"PyTorch left {len(left)} of {len(drawn)} random tensors")


def gradients_in(step, model, loss, dtype):
    """Losses and gradients, by their names in Belfry, as PyTorch computes them in this type."""
    model.to(dtype).train()
    parameters = step.parameters_in(model)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(step.variables[name])
    inputs = [x.to(dtype) if x.is_floating_point() else x.long() for x in step.inputs]
    with played_back(step.random, dtype):
        losses = loss(model, *inputs)
    losses = losses if isinstance(losses, dict) else {"": losses}
    gradients = {}
    for name, names in step.trained.items():
        found = torch.autograd.grad(losses[name], [parameters[n] for n in names], retain_graph=True)
        gradients |= zip(names, found)
    return losses, gradients


# Gradients so much smaller than others are zero but for rounding, such as before a batch norm.
ZERO = 1e-10


def gradient_distances(gradients, right):
    most = max(map(largest, right.values()))
    scales = {name: most if largest(right[name]) < ZERO * most else None for name in right}
    return {name: distance(gradients[name], right[name], scales[name]) for name in right}


def distances(step, losses, gradients, expected):
    right_losses, right = expected
    return Distances(max(distance(losses[name], right_losses[name]) for name in step.losses),
                     gradient_distances(gradients, right))


def compare(path, model, loss):
    step = Step(path)
    theirs = gradients_in(step, model, loss, torch.float)
    theirs = [{name: tensor.detach().clone() for name, tensor in part.items()} for part in theirs]
    right = gradients_in(step, model, loss, torch.double)
    ours = distances(step, step.losses, step.gradients, right)
    return dataclasses.replace(ours, in_f32=distances(step, *theirs, right).most)
