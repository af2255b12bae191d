"""SegNet: pooling remembers where its maxima were, and unpooling puts them back."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


def convolve(before: int, after: int) -> nn.Sequential:
    """3×3 convolution, batch normalisation, ReLU."""
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class SegNet(nn.Module):
    """Two levels of the original's five; log-probabilities per pixel."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.down1 = nn.Sequential(convolve(3, 8), convolve(8, 8))
        self.down2 = nn.Sequential(convolve(8, 16), convolve(16, 16))
        self.pool, self.unpool = nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)
        self.up2 = nn.Sequential(convolve(16, 16), convolve(16, 8))
        self.up1 = nn.Sequential(convolve(8, 8), nn.Conv2d(8, classes, 3, padding=1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x1 = self.down1(image)
        x, at1 = self.pool(x1)
        x2 = self.down2(x)
        x, at2 = self.pool(x2)
        x = self.up2(self.unpool(x, at2, output_size=x2.shape))
        return F.log_softmax(self.up1(self.unpool(x, at1, output_size=x1.shape)), dim=1)


@model(
    "segnet",
    axes=(
        Axis("batch", {"image": 0}, (1, 3)),
        Axis("height", {"image": 2}, (24,)),
        Axis("width", {"image": 3}, (20,)),
    ),
    source="Badrinarayanan, Kendall, Cipolla, SegNet, TPAMI 2017",
)
def segnet() -> ModelAndInputs:
    return trained(SegNet()), (torch.randn(2, 3, 16, 16),)
