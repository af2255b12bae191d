"""A diffusion UNet's down, middle and up blocks with cross-attention to a text."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model

_WIDTH, _TIME, _CONTEXT = 16, 32, 24


class ResBlock(nn.Module):
    """Group norm, SiLU and convolution twice, shifted by the time step in between."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(_TIME, after)
        self.norm2, self.conv2 = nn.GroupNorm(8, after), nn.Conv2d(after, after, 3, padding=1)
        self.dropout = nn.Dropout(0.0)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        out = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(out))))


class CrossAttention(nn.Module):
    """Queries from the image; keys and values from the image or the text."""

    def __init__(self, width: int, context: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k, self.to_v = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        def split(t: torch.Tensor) -> torch.Tensor:
            return t.reshape(*t.shape[:-1], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
        out = torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class GEGLU(nn.Module):
    """A perceptron gated by GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(x * F.gelu(gate))


class SpatialTransformer(nn.Module):
    """Self-attention, cross-attention and perceptron over the pixels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.attn1, self.attn2 = CrossAttention(width, width), CrossAttention(width, _CONTEXT)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.ff = GEGLU(width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        batch, width, rows, columns = x.shape
        pixels = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, rows * columns, width)
        normed = self.norm1(pixels)
        pixels = pixels + self.attn1(normed, normed)
        pixels = pixels + self.attn2(self.norm2(pixels), context)
        pixels = pixels + self.ff(self.norm3(pixels))
        out = pixels.reshape(batch, rows, columns, width).permute(0, 3, 1, 2)
        return self.proj_out(out) + x


class UNet(nn.Module):
    """One level down and up again, with the original's every kind of layer."""

    def __init__(self) -> None:
        super().__init__()
        self.time_embed = nn.Sequential(nn.Linear(_WIDTH, _TIME), nn.SiLU(), nn.Linear(_TIME, _TIME))
        self.conv_in = nn.Conv2d(4, _WIDTH, 3, padding=1)
        self.down_res, self.down_attn = ResBlock(_WIDTH, _WIDTH), SpatialTransformer(_WIDTH)
        self.downsample = nn.Conv2d(_WIDTH, _WIDTH, 3, stride=2, padding=1)
        self.mid_res1, self.mid_attn = ResBlock(_WIDTH, 2 * _WIDTH), SpatialTransformer(2 * _WIDTH)
        self.mid_res2 = ResBlock(2 * _WIDTH, 2 * _WIDTH)
        self.upsample = nn.Conv2d(2 * _WIDTH, 2 * _WIDTH, 3, padding=1)
        self.up_res, self.up_attn = ResBlock(3 * _WIDTH, _WIDTH), SpatialTransformer(_WIDTH)
        self.norm_out, self.conv_out = nn.GroupNorm(8, _WIDTH), nn.Conv2d(_WIDTH, 4, 3, padding=1)

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        half = _WIDTH // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half)
        angles = timestep[:, None].float() * frequencies[None]
        time = self.time_embed(torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1).to(sample.dtype))
        skip = self.down_attn(self.down_res(self.conv_in(sample), time), context)
        x = self.mid_res1(self.downsample(skip), time)
        x = self.mid_res2(self.mid_attn(x, context), time)
        x = self.upsample(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.up_attn(self.up_res(torch.cat([x, skip], dim=1), time), context)
        return self.conv_out(F.silu(self.norm_out(x)))


@model(
    "diffusion-unet",
    axes=(
        Axis("batch", {"sample": 0, "timestep": 0, "context": 0}, (1, 3)),
        Axis("height", {"sample": 2}, (12,)),
        Axis("width", {"sample": 3}, (16,)),
        Axis("text", {"context": 1}, (9,)),
    ),
    source="Rombach et al., High-Resolution Image Synthesis with Latent Diffusion Models, CVPR 2022",
)
def diffusion_unet() -> ModelAndInputs:
    inputs = torch.randn(2, 4, 8, 8), torch.tensor([10, 500]), torch.randn(2, 5, _CONTEXT)
    return trained(UNet()), inputs
