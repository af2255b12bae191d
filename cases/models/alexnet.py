"""AlexNet: the five convolutions and three linear layers that began it."""

from __future__ import annotations

import torch
from torch import nn

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class AlexNet(nn.Module):
    """AlexNet as published, with local response normalisation, overlapping pooling and dropout; widths / 8."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(12, 32, kernel_size=5, padding=2, groups=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(32, 48, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(48, 48, kernel_size=3, padding=1, groups=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(48, 32, kernel_size=3, padding=1, groups=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(32 * 2 * 2, 64),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(64, 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, classes),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(image)), 1))


@model(
    "alexnet",
    axes=(
        Axis("batch", {"image": 0}, (1, 5)),
        Axis("height", {"image": 2}, (127,)),
        Axis("width", {"image": 3}, (160,)),
    ),
    source="Krizhevsky, Sutskever, Hinton, ImageNet Classification with Deep CNNs, NeurIPS 2012",
)
def alexnet() -> ModelAndInputs:
    return trained(AlexNet()), (torch.randn(2, 3, 95, 95),)
