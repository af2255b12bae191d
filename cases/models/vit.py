"""Vision transformer: patches, a class token, pre-norm encoder blocks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class Attention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a GELU perceptron, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """ViT/8 on images of 32, with positions that are interpolated for other sizes, as for fine-tuning."""

    def __init__(self, size: int = 32, patch: int = 8, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.patch, self.side = patch, size // patch
        self.patch_embed = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + self.side**2, width) * 0.02)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 10)

    def positions(self, height: int, width: int) -> torch.Tensor:
        """Return the embeddings of `height` × `width` patches; shape ``[1, 1 + height · width, channels]``."""
        grid = self.pos_embed[:, 1:].reshape(1, self.side, self.side, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=False)
        return torch.cat([self.pos_embed[:, :1], grid.flatten(2).transpose(1, 2)], 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.patch_embed(image)
        x = patches.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.dropout(x + self.positions(patches.shape[2], patches.shape[3]))
        return self.head(self.norm(self.blocks(x))[:, 0])


@model(
    "vit",
    axes=(
        Axis("batch", {"image": 0}, (1, 5)),
        Axis("height", {"image": 2}, (48,)),
        Axis("width", {"image": 3}, (40,)),
    ),
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021",
)
def vit() -> ModelAndInputs:
    return trained(VisionTransformer()), (torch.randn(2, 3, 32, 32),)
