"""Data-dependent control flow: as Python has it, which tracing cannot see, and as operators that take functions."""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from harness.pipeline.model_loading import Axis, ModelAndInputs, model


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


class Switch(nn.Module):
    """One of two experts, chosen by the input's own values, with `torch.cond`."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 1, bias=False)
        self.positive, self.negative = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            self.gate(x).sum() > 0, lambda y: torch.tanh(self.positive(y)), lambda y: torch.relu(self.negative(y)), (x,)
        )


@model("switch", axes=(Axis("batch", {"x": 0}, (1, 5)),), source="Shazeer et al., Outrageously Large Networks, 2017")
def switch() -> ModelAndInputs:
    return Switch().eval(), (torch.randn(2, 8),)


class Halving(nn.Module):
    """Refines as often as the values ask for, with `while_loop`."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def goes_on(x: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
            return (x.abs().max() > 0.5) & (rounds < 6)

        def refined(x: torch.Tensor, rounds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 0.5, rounds + 1

        return while_loop(goes_on, refined, (x, torch.tensor(0)))  # type: ignore[no-untyped-call]


@model("halving-loop", source="Graves, Adaptive Computation Time for Recurrent Neural Networks, 2016")
def halving_loop() -> ModelAndInputs:
    return Halving().eval(), (torch.randn(2, 8),)


class Recurrence(nn.Module):
    """A simple recurrent network, with `scan`."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(hidden: torch.Tensor, element: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = torch.tanh(self.inner(element) + 0.5 * hidden)
            return hidden, hidden * 2

        return scan(step, torch.zeros_like(x[0]), x, dim=0)


@model("recurrence", axes=(Axis("length", {"x": 0}, (2, 9)),), source="Elman, Finding Structure in Time, 1990")
def recurrence() -> ModelAndInputs:
    return Recurrence().eval(), (torch.randn(5, 2, 4),)
