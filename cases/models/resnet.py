"""ResNet: residual blocks, plain and with a bottleneck."""

from __future__ import annotations

import torch
from torch import nn

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, as in ResNet-18."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(before, width * self.expansion, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 and a shortcut, as in ResNet-50."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(before, width * self.expansion, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        out = self.bn3(self.conv3(out))
        out += self.downsample(x)
        return self.relu(out)


def shortcut(before: int, after: int, stride: int) -> nn.Module:
    """The identity where the shape stays, else a strided 1×1 convolution."""
    if before == after and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


class ResNet(nn.Module):
    """The original's stem and four stages."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        width: int = 8,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        channels = width
        for stage, depth in enumerate(depths, 1):
            blocks = []
            for i in range(depth):
                stride = 2 if i == 0 and stage > 1 else 1
                blocks.append(block(channels, width * 2 ** (stage - 1), stride))
                channels = width * 2 ** (stage - 1) * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


_AXES = (
    Axis("batch", {"image": 0}, (1, 5)),
    Axis("height", {"image": 2}, (96,)),
    Axis("width", {"image": 3}, (80,)),
)
_SOURCE = "He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016"


@model("resnet18", axes=_AXES, source=_SOURCE)
def resnet18() -> ModelAndInputs:
    return trained(ResNet(BasicBlock, (2, 2, 2, 2))), (torch.randn(2, 3, 64, 64),)


@model("resnet50", axes=_AXES, source=_SOURCE)
def resnet50() -> ModelAndInputs:
    return trained(ResNet(Bottleneck, (2, 2, 2, 2), width=4)), (torch.randn(2, 3, 64, 64),)
