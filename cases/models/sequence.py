"""A GRU and LSTM sequence model: bidirectional GRU, projected LSTM, a GRU cell stepped in a loop."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_FEATURES, _WIDTH = 12, 16


class SequenceTagger(nn.Module):
    """Features over time to a label per step and a few decoded steps after the last."""

    def __init__(self, labels: int = 7, steps: int = 3) -> None:
        super().__init__()
        self.steps = steps
        self.gru = nn.GRU(_FEATURES, _WIDTH, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(2 * _WIDTH, _WIDTH, num_layers=2, batch_first=True, proj_size=8)
        self.rnn = nn.RNN(8, 8, nonlinearity="tanh", batch_first=True)
        self.score = nn.Linear(8, 1)
        self.cell = nn.GRUCell(8, 8)
        self.label = nn.Linear(8, labels)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both, _ = self.gru(features)
        projected, _ = self.lstm(both)
        hidden, _ = self.rnn(projected)
        weights = torch.softmax(self.score(hidden), dim=1)
        pooled = (weights * hidden).sum(dim=1)
        state, decoded = pooled, []
        for _ in range(self.steps):
            state = self.cell(pooled, state)
            decoded.append(self.label(state))
        return F.log_softmax(self.label(hidden), dim=-1), torch.stack(decoded, dim=1)


@model(
    "sequence-tagger",
    axes=(Axis("batch", {"features": 0}, (1, 4)), Axis("sequence", {"features": 1}, (2, 11))),
    source="Cho et al., 2014 (GRU); Sak, Senior, Beaufays, 2014 (projected LSTM); Schuster, Paliwal, 1997",
)
def sequence_tagger() -> ModelAndInputs:
    return SequenceTagger().eval(), (torch.randn(2, 6, _FEATURES),)
