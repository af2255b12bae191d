"""PyTorch against its documentation of `align_corners`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.invocation import Argument, Invocation, TensorSpec
from harness.pipeline.definition import REFUSALS
from harness.pipeline.torch_call import call_invocation

#: Sizes of a small image and of the larger one that it becomes.
_SMALL, _LARGE = 3, 7
#: Far more than a rounding, and less than a step between the small image's pixels.
_APART = 0.05


@witness("PyTorch's corner pixels", place=95, of_one_call=True, of_any_artefact=True)
def ask_corner_pixels(context: FailureContext) -> Iterator[Testimony]:
    """Testify if PyTorch's kernel loses the corner pixels of an image that it enlarges with `align_corners`.

    "If set to True, the input and output tensors are aligned by the center points of their corner pixels, preserving
    the values at the corner pixels" (`torch.nn.functional.interpolate`). A kernel that moves them in a small image has
    another rule of coordinates than the documentation, so that its results for other sizes are wrong as well.
    """
    invocation = context.invocation
    if context.failure.outcome is not Outcome.MISMATCH or dict(invocation.arguments).get("align_corners") is not True:
        return
    found = _enlarged_corners(invocation)
    if found is not None and (found[0] - found[1]).abs().max() > _APART:
        facts = {"overload": invocation.overload, "kept": found[0].tolist(), "got": found[1].tolist()}
        yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "corner-pixels", facts)


def _enlarged_corners(invocation: Invocation) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the two ends of a small ramp and those of what the operator makes of it; None for other operators."""
    tensors = list(invocation.tensors())
    if len(tensors) != 1 or len(tensors[0].shape) < 3:
        return None
    dims = len(tensors[0].shape) - 2
    image = torch.linspace(0, 1, _SMALL).expand(1, 1, *[_SMALL] * dims).contiguous()
    spec = replace(tensors[0], shape=tuple(image.shape), dtype="float32", strides=tuple(image.stride()), offset=0)
    arguments = tuple((name, _argument(name, value, spec, dims)) for name, value in invocation.arguments)
    try:
        (result, *_) = call_invocation(replace(invocation, arguments=arguments), [image])
    except REFUSALS:
        return None
    middle = (0, 0, *[_LARGE // 2] * (dims - 1))
    return torch.tensor([0.0, 1.0]), result[middle][[0, -1]]


def _argument(name: str, value: Argument, spec: TensorSpec, dims: int) -> Argument:
    if isinstance(value, TensorSpec):
        return spec
    if name == "output_size":
        return (_LARGE,) * dims
    return None if name.startswith("scale") else value
