"""DCGAN: a generator of transposed convolutions and the discriminator that mirrors it."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_SOURCE = "Radford, Metz, Chintala, Unsupervised Representation Learning with DCGANs, ICLR 2016"
#: Size of the latent vector, and channels of the widest layers over eight.
_LATENT, _WIDTH = 16, 4


class Generator(nn.Module):
    """A latent vector to a 64 × 64 image."""

    def __init__(self) -> None:
        super().__init__()
        widths = [8 * _WIDTH, 4 * _WIDTH, 2 * _WIDTH, _WIDTH]
        layers: list[nn.Module] = [nn.ConvTranspose2d(_LATENT, widths[0], 4, 1, 0, bias=False)]
        for before, after in itertools.pairwise(widths):
            layers += [nn.BatchNorm2d(before), nn.ReLU(True)]
            layers.append(nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False))
        layers += [nn.BatchNorm2d(_WIDTH), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(_WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        return self.main(latent)


class Discriminator(nn.Module):
    """A 64 × 64 image to the probability that it is real."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, _WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for before, after in ((1, 2), (2, 4), (4, 8)):
            layers += [
                nn.Conv2d(before * _WIDTH, after * _WIDTH, 4, 2, 1, bias=False),
                nn.BatchNorm2d(after * _WIDTH),
                nn.LeakyReLU(0.2, inplace=True),
            ]
        layers += [nn.Conv2d(8 * _WIDTH, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
        self.main = nn.Sequential(*layers)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.main(image).view(-1, 1).squeeze(1)


@model("dcgan-generator", axes=(Axis("batch", {"latent": 0}, (1, 5)),), source=_SOURCE)
def generator() -> ModelAndInputs:
    return trained(Generator()), (torch.randn(2, _LATENT, 1, 1),)


@model("dcgan-discriminator", axes=(Axis("batch", {"image": 0}, (1, 5)),), source=_SOURCE)
def discriminator() -> ModelAndInputs:
    return trained(Discriminator()), (torch.randn(2, 3, 64, 64),)
