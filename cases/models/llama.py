"""A Llama-style decoder: RMS norm, rotary positions, grouped-query attention, SwiGLU, a KV cache."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_WORDS, _WIDTH, _HEADS, _KV_HEADS, _LAYERS = 64, 32, 4, 2, 2
_HEAD = _WIDTH // _HEADS


class RMSNorm(nn.Module):
    """Computed in float32 whatever the model's dtype, as the original is."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """(a, b) to (-b, a), a and b the halves of the last dimension."""
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class Attention(nn.Module):
    """Four heads of queries share two of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(_WIDTH, _HEADS * _HEAD, bias=False)
        self.k_proj = nn.Linear(_WIDTH, _KV_HEADS * _HEAD, bias=False)
        self.v_proj = nn.Linear(_WIDTH, _KV_HEADS * _HEAD, bias=False)
        self.o_proj = nn.Linear(_HEADS * _HEAD, _WIDTH, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        past: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, _ = x.shape
        cos, sin = rotation
        q = self.q_proj(x).view(batch, length, _HEADS, _HEAD).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, _KV_HEADS, _HEAD).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, _KV_HEADS, _HEAD).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        present = torch.stack((k, v))
        groups = _HEADS // _KV_HEADS
        k = k[:, :, None].expand(-1, -1, groups, -1, -1).reshape(batch, _HEADS, -1, _HEAD)
        v = v[:, :, None].expand(-1, -1, groups, -1, -1).reshape(batch, _HEADS, -1, _HEAD)
        scores = torch.matmul(q, k.transpose(2, 3)) * _HEAD**-0.5 + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(out), present


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, inner: int = 88) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(_WIDTH, inner, bias=False)
        self.up_proj = nn.Linear(_WIDTH, inner, bias=False)
        self.down_proj = nn.Linear(inner, _WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and perceptron, each normalised before and added after."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(_WIDTH), RMSNorm(_WIDTH)
        self.self_attn = Attention()
        self.mlp = MLP()

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        past: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        attended, present = self.self_attn(self.input_layernorm(x), rotation, mask, past)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), present


class Decoder(nn.Module):
    """The next tokens after a cached past: logits, and the cache with them appended."""

    frequencies: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(_WORDS, _WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(_LAYERS))
        self.norm = RMSNorm(_WIDTH)
        self.lm_head = nn.Linear(_WIDTH, _WORDS, bias=False)
        frequencies = 10000.0 ** -(torch.arange(0, _HEAD, 2, dtype=torch.float32) / _HEAD)
        self.register_buffer("frequencies", frequencies)

    def forward(self, tokens: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen, length = past.shape[4], tokens.shape[1]
        x = self.embed_tokens(tokens)
        positions = torch.arange(seen, seen + length, device=tokens.device)
        angles = torch.outer(positions.to(torch.float32), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        rotation = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = torch.full((length, seen + length), torch.finfo(x.dtype).min, dtype=x.dtype)
        mask = torch.triu(mask, diagonal=seen + 1)
        presents = []
        for index, layer in enumerate(self.layers):
            x, present = layer(x, rotation, mask, past[index])
            presents.append(present)
        return self.lm_head(self.norm(x)), torch.stack(presents)


@model(
    "llama-decoder",
    axes=(
        Axis("batch", {"tokens": 0, "past": 2}, (1, 3)),
        Axis("sequence", {"tokens": 1}, (1, 9)),
        Axis("past", {"past": 4}, (2, 11)),
    ),
    source="Touvron et al., Llama 2, 2023; Su et al., RoFormer, 2021; Ainslie et al., GQA, EMNLP 2023",
)
def llama_decoder() -> ModelAndInputs:
    tokens = torch.randint(0, _WORDS, (2, 4))
    return Decoder().eval(), (tokens, torch.randn(_LAYERS, 2, 2, _KV_HEADS, 6, _HEAD))
