"""Super-resolution by sub-pixel convolution: the model of PyTorch's first ONNX tutorial."""

from __future__ import annotations

import torch
from torch import nn

from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class SuperResolution(nn.Module):
    """Luminance in, luminance three times as large out."""

    def __init__(self, factor: int = 3) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=False)
        self.conv1 = nn.Conv2d(1, 16, 5, 1, 2)
        self.conv2 = nn.Conv2d(16, 16, 3, 1, 1)
        self.conv3 = nn.Conv2d(16, 8, 3, 1, 1)
        self.conv4 = nn.Conv2d(8, factor**2, 3, 1, 1)
        self.pixel_shuffle = nn.PixelShuffle(factor)
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(self.conv4.weight)

    def forward(self, luminance: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.conv1(luminance))
        x = self.relu(self.conv3(self.relu(self.conv2(x))))
        return self.pixel_shuffle(self.conv4(x))


@model(
    "super-resolution",
    axes=(
        Axis("batch", {"luminance": 0}, (1, 4)),
        Axis("height", {"luminance": 2}, (17,)),
        Axis("width", {"luminance": 3}, (40,)),
    ),
    source="Shi et al., Real-Time Single Image and Video Super-Resolution, CVPR 2016",
)
def super_resolution() -> ModelAndInputs:
    return SuperResolution().eval(), (torch.rand(2, 1, 24, 24),)
