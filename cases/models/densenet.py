"""DenseNet-BC: every layer reads all before it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class DenseLayer(nn.Module):
    """Normalise, squeeze to four times the growth, convolve."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        squeezed = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return F.dropout(self.conv2(self.relu2(self.norm2(squeezed))), p=0.1, training=self.training)


class DenseBlock(nn.Module):
    """Layers whose outputs are all concatenated."""

    def __init__(self, channels: int, layers: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + i * growth, growth) for i in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    """Halves channels and size between blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels // 2, 1, bias=False),
            nn.AvgPool2d(2, 2),
        )


class DenseNet(nn.Module):
    """DenseNet-121's order with growth 4 and blocks of two to four layers."""

    def __init__(self, growth: int = 4, blocks: tuple[int, ...] = (2, 3, 4), classes: int = 10) -> None:
        super().__init__()
        channels = 2 * growth
        parts: list[nn.Module] = [
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        for i, layers in enumerate(blocks):
            parts.append(DenseBlock(channels, layers, growth))
            channels += layers * growth
            if i + 1 < len(blocks):
                parts.append(Transition(channels))
                channels //= 2
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.features(image), inplace=True)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(features, (1, 1)), 1))


@model(
    "densenet",
    axes=(
        Axis("batch", {"image": 0}, (1, 5)),
        Axis("height", {"image": 2}, (96,)),
        Axis("width", {"image": 3}, (80,)),
    ),
    source="Huang, Liu, van der Maaten, Weinberger, Densely Connected Convolutional Networks, CVPR 2017",
)
def densenet() -> ModelAndInputs:
    return trained(DenseNet()), (torch.randn(2, 3, 64, 64),)
