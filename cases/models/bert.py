"""BERT: embeddings of words, positions and segments, post-norm encoder layers, a pooler."""

from __future__ import annotations

import math

import torch
from torch import nn

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_WORDS, _WIDTH, _HEADS, _LONGEST = 60, 32, 4, 32


class SelfAttention(nn.Module):
    """Scores, mask and softmax written out, as the original has them."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.dense = nn.Linear(_WIDTH, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, length, width]`` to ``[batch, heads, length, width / heads]``."""
        return x.view(*x.shape[:-1], _HEADS, _WIDTH // _HEADS).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(_WIDTH // _HEADS) + mask
        weights = self.dropout(torch.softmax(scores, dim=-1))
        context = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        out = self.dense(context.view(*context.shape[:-2], _WIDTH))
        return self.norm(self.dropout(out) + x)


class Layer(nn.Module):
    """Attention, then a GELU perceptron, each normalised after it is added."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()
        self.intermediate, self.output = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.gelu = nn.GELU()
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.attention(x, mask)
        return self.norm(self.output(self.gelu(self.intermediate(x))) + x)


class Bert(nn.Module):
    """Hidden states of all words, and the pooled one of the first."""

    position_ids: torch.Tensor

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _WIDTH, padding_idx=0)
        self.positions, self.segments = nn.Embedding(_LONGEST, _WIDTH), nn.Embedding(2, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.pooler = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh())
        self.register_buffer("position_ids", torch.arange(_LONGEST).expand((1, -1)))

    def forward(
        self, words: torch.Tensor, attention_mask: torch.Tensor, segments: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        positions = self.position_ids[:, : words.shape[1]]
        x = self.words(words) + self.segments(segments) + self.positions(positions)
        x = self.dropout(self.norm(x))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x, self.pooler(x[:, 0])


@model(
    "bert-encoder",
    axes=(
        Axis("batch", {"words": 0, "attention_mask": 0, "segments": 0}, (1, 5)),
        Axis("sequence", {"words": 1, "attention_mask": 1, "segments": 1}, (3, 20)),
    ),
    source="Devlin, Chang, Lee, Toutanova, BERT, NAACL 2019",
)
def bert_encoder() -> ModelAndInputs:
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    words = torch.randint(1, _WORDS, (2, 9)) * mask
    segments = (torch.arange(9) > 4).to(torch.int64).expand(2, 9).contiguous()
    return trained(Bert()), (words, mask, segments)
