"""A detection head without NMS: peaks of a heat map by max pooling and top-k, boxes gathered at them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from cases.models._weights import trained
from harness.pipeline.model_loading import Axis, ModelAndInputs, model


class Detector(nn.Module):
    """A small backbone with a top-down path; towers for classes, boxes and centre-ness.

    Returns boxes ``[batch, count, 4]`` in pixels, scores and classes ``[batch, count]``.
    """

    def __init__(self, classes: int = 4, width: int = 16, count: int = 10) -> None:
        super().__init__()
        self.count, self.classes = count, classes
        self.c2 = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.Hardswish(), nn.Conv2d(width, width, 3, 2, 1), nn.Hardswish()
        )
        self.c3 = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU())
        self.lateral = nn.Conv2d(width, width, 1)
        self.class_tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU())
        self.box_tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU())
        self.heat, self.box = nn.Conv2d(width, classes, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.centre = nn.Conv2d(width, 1, 3, padding=1)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        fine = self.c2(image)
        coarse = F.interpolate(self.c3(fine), size=fine.shape[-2:], mode="bilinear", align_corners=False)
        features = self.lateral(fine) + coarse
        boxes = self.box_tower(features)
        heat = self.heat(self.class_tower(features)).sigmoid() * self.centre(boxes).sigmoid()
        peaks = heat * (F.max_pool2d(heat, 3, stride=1, padding=1) == heat)
        rows, columns = peaks.shape[-2:]
        scores, places = torch.topk(peaks.flatten(1), self.count)
        classes = torch.div(places, rows * columns, rounding_mode="floor")
        cells = places % (rows * columns)
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centres = (torch.stack((x, y), dim=-1).reshape(-1, 2).to(heat.dtype) + 0.5) * 4
        sides = torch.exp(self.box(boxes) * self.scale).clamp(max=64.0).flatten(2).transpose(1, 2)
        chosen = torch.gather(sides, 1, cells.unsqueeze(-1).expand(-1, -1, 4))
        at = centres[cells]
        corners = torch.cat((at - chosen[..., :2], at + chosen[..., 2:]), dim=-1)
        width, height = image.shape[-1], image.shape[-2]
        limits = torch.tensor([width, height, width, height], dtype=corners.dtype)
        return torch.minimum(corners.clamp(min=0), limits), scores, classes


@model(
    "detection-head",
    axes=(
        Axis("batch", {"image": 0}, (1, 3)),
        Axis("height", {"image": 2}, (48,)),
        Axis("width", {"image": 3}, (40,)),
    ),
    source="Zhou, Wang, Krähenbühl, Objects as Points, 2019; Tian et al., FCOS, ICCV 2019",
)
def detection_head() -> ModelAndInputs:
    return trained(Detector()), (torch.randn(2, 3, 32, 32),)
