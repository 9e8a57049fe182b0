"""The model of examples/mnist.cc in PyTorch."""
import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 32, 3, padding="same")
        self.conv1 = nn.Conv2d(32, 64, 3, padding="same")
        self.fc0 = nn.Linear(7 * 7 * 64, 128)
        self.fc1 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv0(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)  # Belfry keeps channels last
        return self.fc1(torch.relu(self.fc0(x)))


def loss(model, image, label):
    return F.cross_entropy(model(image), label)
