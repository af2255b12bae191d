"""Data-dependent control flow: what tracing cannot see, so that an export is right for one input alone."""

from __future__ import annotations

import torch
from torch import nn

from harness.execute.models.model_loading import Axis, ModelAndInputs, model


class Gate(nn.Module):
    """One of two experts, chosen by the input's own values, and refined as often as they ask for."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 1, bias=False)
        self.positive, self.negative = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        expert = self.positive if self.gate(x).sum() > 0 else self.negative
        x = torch.tanh(expert(x))
        rounds = 0
        while x.abs().max() > 0.5 and rounds < 4:
            x, rounds = x * 0.5, rounds + 1
        return x


@model(
    "control-flow",
    axes=(Axis("batch", {"x": 0}, (1, 5)),),
    source="Graves, Adaptive Computation Time for Recurrent Neural Networks, 2016; Shazeer et al., 2017",
)
def control_flow() -> ModelAndInputs:
    return Gate().eval(), (torch.randn(2, 8),)
