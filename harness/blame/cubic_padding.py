"""The two readings of GridSample's padding for a cubic interpolation, whose window of four pixels reaches further.

By the text, values of the border stand in "for out-of-bound grid locations". `onnx.reference` moves the location to the
border and then takes the four pixels about it. PyTorch, which the text refers to, and ONNX Runtime leave the location
where it is and move each of the four pixels. Linear interpolation gives the same either way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch

from harness.core.dtypes import Array
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.node_steps import node_attribute
from harness.pipeline.nodes.readings import Rerun

#: Difference from PyTorch's result, relative to the largest element, that is rounding.
_ROUNDING = 1e-4


def pads_beyond_the_border(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether a node interpolates cubically about a location outside of the image, where values of the border stand in.

    Reflection gives the same either way: the pixels about a reflected location are the reflected pixels.
    """
    grid = inputs[1]
    is_cubic = node_attribute(node, "mode", b"") in (b"cubic", b"bicubic")
    pads = node_attribute(node, "padding_mode", b"") == b"border"
    return is_cubic and pads and grid is not None and bool((np.abs(grid.astype(np.float64)) > 1).any())


def moves_each_pixel(definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Sequence[int]) -> bool:
    """Whether the results are those of moving each pixel, which PyTorch's grid_sample does; only images have it."""
    node = definition.step.node
    image, grid = (definition.inputs[name].astype(np.float64) for name in node.input)
    if image.ndim != 4:
        return False
    sampled = torch.nn.functional.grid_sample(
        torch.from_numpy(image),
        torch.from_numpy(grid),
        mode="bicubic",
        padding_mode="border",
        align_corners=bool(node_attribute(node, "align_corners", 0)),
    ).numpy()
    largest = float(np.abs(sampled).max(initial=0.0))
    return got[0].shape == sampled.shape and bool(np.allclose(got[0], sampled, rtol=0, atol=_ROUNDING * largest))
