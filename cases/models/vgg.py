"""VGG: 3×3 convolutions and pooling, with and without batch normalisation."""

from __future__ import annotations

import torch
from torch import nn

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model

#: Configuration A; 0 is a pooling layer. Channels / 16.
_LAYERS = (4, 0, 8, 0, 16, 16, 0, 32, 32, 0, 32, 32, 0)


class VGG(nn.Module):
    """VGG-11."""

    def __init__(self, normalised: bool, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in _LAYERS:
            if not width:
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
                continue
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
            if normalised:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(32 * 4, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 64), nn.ReLU(True), nn.Dropout()
        )
        self.head = nn.Linear(64, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.flatten(self.avgpool(self.features(image)), 1)
        return self.head(self.classifier(x))


_AXES = (
    Axis("batch", {"image": 0}, (1, 5)),
    Axis("height", {"image": 2}, (96,)),
    Axis("width", {"image": 3}, (128,)),
)
_SOURCE = "Simonyan, Zisserman, Very Deep Convolutional Networks, ICLR 2015"


@model("vgg11", axes=_AXES, source=_SOURCE)
def vgg11() -> ModelAndInputs:
    return trained(VGG(normalised=False)), (torch.randn(2, 3, 64, 64),)


@model("vgg11-bn", axes=_AXES, source=_SOURCE)
def vgg11_bn() -> ModelAndInputs:
    return trained(VGG(normalised=True)), (torch.randn(2, 3, 64, 64),)
