"""The model of examples/resnet20.cc in PyTorch."""
import torch.nn.functional as F
from torch import nn


def conv_bn(channels, filters, stride=1):
    """With a stride, the odd pixel of padding is at the right and the bottom."""
    padding = nn.ZeroPad2d((0, 1, 0, 1)) if stride == 2 else nn.ZeroPad2d(1)
    return nn.Sequential(padding, nn.Conv2d(channels, filters, 3, stride, bias=False), nn.BatchNorm2d(filters))


class Block(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.stride, self.more = stride, filters - channels
        self.conv1 = conv_bn(channels, filters, stride)
        self.conv2 = conv_bn(filters, filters)

    def forward(self, x):
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(self.conv2(F.relu(self.conv1(x))) + shortcut)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = conv_bn(3, 16)
        blocks = []
        for channels, filters in ((16, 16), (16, 32), (32, 64)):
            blocks += [Block(channels, filters, filters // channels)] + [Block(filters, filters, 1) for _ in range(2)]
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, image):
        return self.fc(self.blocks(F.relu(self.conv0(image))).mean((2, 3)))


def loss(model, image, label):
    return F.cross_entropy(model(image), label)
