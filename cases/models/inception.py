"""Inception v3: parallel branches of factorised convolutions; known to be sensitive to rounding."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class ConvBN(nn.Module):
    """Convolution without bias, batch normalisation with the original's eps, ReLU."""

    def __init__(self, before: int, after: int, **geometry: int | tuple[int, int]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, bias=False, **geometry)  # type: ignore[arg-type]
        self.bn = nn.BatchNorm2d(after, eps=0.001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class InceptionA(nn.Module):
    """1×1, 5×5, double 3×3 and pooled branches."""

    def __init__(self, channels: int, pooled: int) -> None:
        super().__init__()
        self.b1 = ConvBN(channels, 4, kernel_size=1)
        self.b5 = nn.Sequential(ConvBN(channels, 3, kernel_size=1), ConvBN(3, 4, kernel_size=5, padding=2))
        self.b3 = nn.Sequential(
            ConvBN(channels, 4, kernel_size=1),
            ConvBN(4, 6, kernel_size=3, padding=1),
            ConvBN(6, 6, kernel_size=3, padding=1),
        )
        self.pool = ConvBN(channels, pooled, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return torch.cat([self.b1(x), self.b5(x), self.b3(x), pooled], 1)


class InceptionB(nn.Module):
    """Halves the size: strided convolutions in parallel with max pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.b3 = ConvBN(channels, 12, kernel_size=3, stride=2)
        self.b33 = nn.Sequential(
            ConvBN(channels, 4, kernel_size=1),
            ConvBN(4, 6, kernel_size=3, padding=1),
            ConvBN(6, 6, kernel_size=3, stride=2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.b3(x), self.b33(x), F.max_pool2d(x, kernel_size=3, stride=2)], 1)


class InceptionC(nn.Module):
    """7×7 convolutions as 1×7 and 7×1."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        row: dict[str, tuple[int, int]] = {"kernel_size": (1, 7), "padding": (0, 3)}
        column: dict[str, tuple[int, int]] = {"kernel_size": (7, 1), "padding": (3, 0)}
        self.b1 = ConvBN(channels, 8, kernel_size=1)
        self.b7 = nn.Sequential(
            ConvBN(channels, inner, kernel_size=1), ConvBN(inner, inner, **row), ConvBN(inner, 8, **column)
        )
        self.b77 = nn.Sequential(
            ConvBN(channels, inner, kernel_size=1),
            ConvBN(inner, inner, **column),
            ConvBN(inner, inner, **row),
            ConvBN(inner, inner, **column),
            ConvBN(inner, 8, **row),
        )
        self.pool = ConvBN(channels, 8, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return torch.cat([self.b1(x), self.b7(x), self.b77(x), pooled], 1)


class InceptionD(nn.Module):
    """Halves the size again, after 1×7 and 7×1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.b3 = nn.Sequential(ConvBN(channels, 6, kernel_size=1), ConvBN(6, 10, kernel_size=3, stride=2))
        self.b7 = nn.Sequential(
            ConvBN(channels, 6, kernel_size=1),
            ConvBN(6, 6, kernel_size=(1, 7), padding=(0, 3)),
            ConvBN(6, 6, kernel_size=(7, 1), padding=(3, 0)),
            ConvBN(6, 6, kernel_size=3, stride=2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.b3(x), self.b7(x), F.max_pool2d(x, kernel_size=3, stride=2)], 1)


class InceptionE(nn.Module):
    """Branches that split once more and are concatenated twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        row: dict[str, tuple[int, int]] = {"kernel_size": (1, 3), "padding": (0, 1)}
        column: dict[str, tuple[int, int]] = {"kernel_size": (3, 1), "padding": (1, 0)}
        self.b1 = ConvBN(channels, 10, kernel_size=1)
        self.b3 = ConvBN(channels, 12, kernel_size=1)
        self.b3a, self.b3b = ConvBN(12, 12, **row), ConvBN(12, 12, **column)
        self.b33 = nn.Sequential(ConvBN(channels, 14, kernel_size=1), ConvBN(14, 12, kernel_size=3, padding=1))
        self.b33a, self.b33b = ConvBN(12, 12, **row), ConvBN(12, 12, **column)
        self.pool = ConvBN(channels, 6, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b3, b33 = self.b3(x), self.b33(x)
        pooled = self.pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        split = torch.cat([self.b3a(b3), self.b3b(b3)], 1)
        split_twice = torch.cat([self.b33a(b33), self.b33b(b33)], 1)
        return torch.cat([self.b1(x), split, split_twice, pooled], 1)


class InceptionV3(nn.Module):
    """Every kind of block of the original once, in its order; widths / 16. No auxiliary logits."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ConvBN(3, 4, kernel_size=3, stride=2),
            ConvBN(4, 4, kernel_size=3),
            ConvBN(4, 8, kernel_size=3, padding=1),
            nn.MaxPool2d(kernel_size=3, stride=2),
            ConvBN(8, 10, kernel_size=1),
            ConvBN(10, 12, kernel_size=3),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.mixed = nn.Sequential(
            InceptionA(12, 2),
            InceptionA(16, 4),
            InceptionB(18),
            InceptionC(36, 8),
            InceptionD(32),
            InceptionE(48),
        )
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout()
        self.fc = nn.Linear(64, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        # From the statistics of one training set to those of the other, as the published weights need it.
        red = torch.unsqueeze(image[:, 0], 1) * (0.229 / 0.5) + (0.485 - 0.5) / 0.5
        green = torch.unsqueeze(image[:, 1], 1) * (0.224 / 0.5) + (0.456 - 0.5) / 0.5
        blue = torch.unsqueeze(image[:, 2], 1) * (0.225 / 0.5) + (0.406 - 0.5) / 0.5
        x = self.mixed(self.stem(torch.cat((red, green, blue), 1)))
        return self.fc(torch.flatten(self.dropout(self.pool(x)), 1))


@model(
    "inception-v3",
    axes=(
        Axis("batch", {"image": 0}, (1, 3)),
        Axis("height", {"image": 2}, (107,)),
        Axis("width", {"image": 3}, (96,)),
    ),
    source="Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016",
)
def inception() -> ModelAndInputs:
    return trained(InceptionV3()), (torch.randn(2, 3, 91, 91),)
