"""Models of a user's, some of which do harm, and a rule that is wrong in the middle of a model."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class Small(nn.Module):
    """A convolution, a call that writes into its argument, and what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 1), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return scores.masked_fill(mask, -torch.inf)


def small() -> ModelAndInputs:
    return Small(), (torch.randn(2, 2, 6, 6), torch.tensor([[True, False, False]]))


class Killer(nn.Module):
    """Ends or holds up its process for inputs of five elements."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 5:
            if self.how == "abort":
                os.abort()
            time.sleep(600)
        return x * 2.0


@model("aborts", axes=(Axis("length", {"x": 0}, (5, 9)),))
def aborts() -> ModelAndInputs:
    return Killer("abort"), (torch.arange(3.0) + torch.rand(3) * 0.5,)


@model("hangs", axes=(Axis("length", {"x": 0}, (5, 9)),))
def hangs() -> ModelAndInputs:
    return Killer("hang"), (torch.arange(3.0) + torch.rand(3) * 0.5,)


def returns_nothing() -> nn.Module:
    return nn.Identity()


def fails() -> ModelAndInputs:
    raise RuntimeError("no weights here")


#: Conversion functions that are wrong in the middle of a model, and right elsewhere in it.
RULES = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo, torchscript

@dynamo("aten::relu")
def relu(self):
    if tuple(self.shape)[1:3] == (32, 4):
        return op.LeakyRelu(self, alpha=0.01)
    return op.Relu(self)

@dynamo("aten::silu")
def silu(self):
    return op.Mul(self, op.HardSigmoid(self, alpha=0.25))

@torchscript("aten::silu")
def silu_symbolic(g, x):
    return g.op("Mul", x, g.op("HardSigmoid", x, alpha_f=0.25))
"""
