"""Weights as training leaves them, in place of those that initialisation leaves."""

from __future__ import annotations

import torch
from torch import nn


def trained(module: nn.Module) -> nn.Module:
    """`module` in evaluation mode with statistics and scales of its normalisations that are not 0 and 1.

    As they are initialised, batch normalisation is the identity, and an exporter that lost it would pass.
    """
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean.normal_(0.0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
                part.weight.uniform_(0.5, 1.5)
                part.bias.normal_(0.0, 0.1)
    return module.eval()
