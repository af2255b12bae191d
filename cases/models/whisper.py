"""A Whisper-style encoder-decoder: convolutions over a spectrogram, sinusoids, cross-attention."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_MELS, _WIDTH, _HEADS, _WORDS, _LONGEST = 16, 32, 4, 48, 24


def sinusoids(length: int, channels: int) -> torch.Tensor:
    """Sines and cosines of positions at geometrically spaced frequencies; ``[length, channels]``."""
    step = math.log(10000.0) / (channels // 2 - 1)
    frequencies = torch.exp(-step * torch.arange(channels // 2))
    angles = torch.arange(length)[:, None] * frequencies[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Attention(nn.Module):
    """Over itself, or over what the encoder heard; keys have no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.key = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.out = nn.Linear(_WIDTH, _WIDTH)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, length, width]`` to ``[batch, heads, length, width / heads]``."""
        return x.view(x.shape[0], x.shape[1], _HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, heard: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.heads(self.query(x)), self.heads(self.key(heard)), self.heads(self.value(heard))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(out.permute(0, 2, 1, 3).flatten(start_dim=2))


class Block(nn.Module):
    """Self-attention, cross-attention in the decoder, perceptron."""

    def __init__(self, crosses: bool) -> None:
        super().__init__()
        self.attn, self.attn_ln = Attention(), nn.LayerNorm(_WIDTH)
        self.cross = Attention() if crosses else None
        self.cross_ln = nn.LayerNorm(_WIDTH) if crosses else None
        self.mlp = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))
        self.mlp_ln = nn.LayerNorm(_WIDTH)

    def forward(
        self, x: torch.Tensor, heard: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        normed = self.attn_ln(x)
        x = x + self.attn(normed, normed, mask)
        if self.cross is not None and self.cross_ln is not None and heard is not None:
            x = x + self.cross(self.cross_ln(x), heard)
        return x + self.mlp(self.mlp_ln(x))


class Whisper(nn.Module):
    """A spectrogram and the words so far to logits of the next ones."""

    positions: torch.Tensor
    mask: torch.Tensor

    def __init__(self, layers: int = 2, frames: int = 20) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(_MELS, _WIDTH, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(_WIDTH, _WIDTH, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(frames, _WIDTH))
        self.encoder = nn.ModuleList(Block(crosses=False) for _ in range(layers))
        self.encoder_ln = nn.LayerNorm(_WIDTH)
        self.token_embedding = nn.Embedding(_WORDS, _WIDTH)
        self.token_positions = nn.Parameter(torch.randn(_LONGEST, _WIDTH) * 0.1)
        self.decoder = nn.ModuleList(Block(crosses=True) for _ in range(layers))
        self.decoder_ln = nn.LayerNorm(_WIDTH)
        mask = torch.empty(_LONGEST, _LONGEST).fill_(-torch.inf).triu_(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, mel: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        heard = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).permute(0, 2, 1)
        heard = (heard + self.positions[: heard.shape[1]]).to(heard.dtype)
        for block in self.encoder:
            heard = block(heard)
        heard = self.encoder_ln(heard)
        length = words.shape[-1]
        x = self.token_embedding(words) + self.token_positions[:length]
        for block in self.decoder:
            x = block(x, heard, self.mask[:length, :length])
        x = self.decoder_ln(x)
        return (x @ torch.transpose(self.token_embedding.weight, 0, 1)).float()


@model(
    "whisper",
    axes=(
        Axis("batch", {"mel": 0, "words": 0}, (1, 3)),
        Axis("frames", {"mel": 2}, (32,)),
        Axis("words", {"words": 1}, (2, 11)),
    ),
    source="Radford et al., Robust Speech Recognition via Large-Scale Weak Supervision, 2022",
)
def whisper() -> ModelAndInputs:
    return trained(Whisper()), (torch.randn(2, _MELS, 24), torch.randint(0, _WORDS, (2, 5)))
