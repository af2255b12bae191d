"""Slips in what slides over an image: convolution, pooling, interpolation."""

from __future__ import annotations

from collections.abc import Sequence

from planted.defect import Value, ints, op, plant


def _pair(sizes: Sequence[int] | int) -> list[int]:
    return [sizes, sizes] if isinstance(sizes, int) else [sizes[0], sizes[-1]]


@plant("convolution", "the bias is skipped")
def convolution(
    slipped: bool,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Value:
    spatial = len(weight.shape) - 2
    every = {
        "strides": _each(stride, spatial),
        "pads": _each(padding, spatial) * 2,
        "dilations": _each(dilation, spatial),
        "group": groups,
    }
    added = None if slipped else bias
    if transposed:
        every["output_padding"] = _each(output_padding, spatial)
        return op.ConvTranspose(input, weight, added, **every)
    return op.Conv(input, weight, added, **every)


def _each(sizes: Sequence[int], count: int) -> list[int]:
    return list(sizes) if len(sizes) == count else [sizes[0]] * count


@plant("conv2d", "padding of height and width is swapped")
def conv2d(
    slipped: bool,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Value:
    pads = _pair(padding)
    if slipped:
        pads = pads[::-1]
    batched = len(input.shape) == 4
    image = input if batched else op.Unsqueeze(input, ints(0))
    result = op.Conv(
        image,
        weight,
        bias,
        strides=_pair(stride),
        pads=pads * 2,
        dilations=_pair(dilation),
        group=groups,
    )
    return result if batched else op.Squeeze(result, ints(0))


@plant("conv1d", "dilation is ignored")
def conv1d(
    slipped: bool,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    batched = len(input.shape) == 3
    image = input if batched else op.Unsqueeze(input, ints(0))
    result = op.Conv(
        image,
        weight,
        bias,
        strides=list(stride),
        pads=list(padding) * 2,
        dilations=[1] if slipped else list(dilation),
        group=groups,
    )
    return result if batched else op.Squeeze(result, ints(0))


@plant("avg_pool2d", "ceil_mode is ignored")
def avg_pool2d(
    slipped: bool,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    kernel = _pair(kernel_size)
    return op.AveragePool(
        self,
        kernel_shape=kernel,
        strides=_pair(stride) if stride else kernel,
        pads=_pair(padding) * 2,
        ceil_mode=int(ceil_mode and not slipped),
        count_include_pad=int(count_include_pad),
    )


@plant("avg_pool1d", "count_include_pad is ignored")
def avg_pool1d(
    slipped: bool,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    batched = len(self.shape) == 3
    result = op.AveragePool(
        self if batched else op.Unsqueeze(self, ints(0)),
        kernel_shape=list(kernel_size),
        strides=list(stride or kernel_size),
        pads=list(padding) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad and not slipped),
    )
    return result if batched else op.Squeeze(result, ints(0))


@plant("max_pool2d", "the stride is one where it is not given")
def max_pool2d(
    slipped: bool,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Value:
    kernel = _pair(kernel_size)
    default = [1, 1] if slipped else kernel
    batched = len(self.shape) == 4
    result, _ = op.MaxPool(
        self if batched else op.Unsqueeze(self, ints(0)),
        kernel_shape=kernel,
        strides=_pair(stride) if stride else default,
        pads=_pair(padding) * 2,
        dilations=_pair(dilation),
        ceil_mode=int(ceil_mode),
    )
    return result if batched else op.Squeeze(result, ints(0))


@plant("upsample_bilinear2d", "align_corners is ignored")
def upsample_bilinear(
    slipped: bool,
    self: Value,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    aligned = align_corners and not slipped
    return op.Resize(
        self,
        None,
        None,
        ints(*map(int, self.shape[:2]), *output_size),
        mode="linear",
        coordinate_transformation_mode="align_corners" if aligned else "pytorch_half_pixel",
    )


@plant("upsample_nearest2d", "the nearest is rounded to")
def upsample_nearest(
    slipped: bool, self: Value, output_size: Sequence[int], scales_h: float | None = None, scales_w: float | None = None
) -> Value:
    return op.Resize(
        self,
        None,
        None,
        ints(*map(int, self.shape[:2]), *output_size),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="round_prefer_floor" if slipped else "floor",
    )
