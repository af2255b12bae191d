"""The LSTM word language model of PyTorch's examples: embedding, stacked LSTM, tied decoder."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_WORDS, _WIDTH, _LAYERS = 50, 16, 2


class WordLanguageModel(nn.Module):
    """Words and the state so far to log-probabilities of the next words and the state after them."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(_WORDS, _WIDTH)
        self.rnn = nn.LSTM(_WIDTH, _WIDTH, _LAYERS, dropout=0.2)
        self.decoder = nn.Linear(_WIDTH, _WORDS)
        self.decoder.weight = self.encoder.weight

    def forward(
        self, words: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        output, (hidden, cell) = self.rnn(self.drop(self.encoder(words)), (hidden, cell))
        decoded = self.decoder(self.drop(output)).view(-1, _WORDS)
        return F.log_softmax(decoded, dim=1), hidden, cell


@model(
    "word-language-model",
    axes=(
        Axis("sequence", {"words": 0}, (1, 12)),
        Axis("batch", {"words": 1, "hidden": 1, "cell": 1}, (1, 5)),
    ),
    source="github.com/pytorch/examples, word_language_model; Zaremba et al., 2014; Press, Wolf, 2017",
)
def word_language_model() -> ModelAndInputs:
    state = torch.randn(2, _LAYERS, 2, _WIDTH) * 0.5
    return WordLanguageModel().eval(), (torch.randint(0, _WORDS, (7, 2)), state[0].clone(), state[1].clone())
