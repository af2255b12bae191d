"""Interpolation: resizing by nearest, linear and cubic weights, and sampling at given coordinates.

Resizing takes a size, a scale, or both; a scale that does not belong to the size is valid and changes the
result, and so is one whose product with the input's size is not an integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cases.rules.resizing import documented, resized
from harness.compare.judge import EXACT, Allowance, Judge, Mask
from harness.core.dtypes import FLOATS, FULL_FLOATS, INTS, PRECISION, Array
from harness.generate.draw import ANY, OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("interpolation")

_SCALES = (2.0, 1.5, 0.5, 3.0, 1.0, 0.7, 2.3, 1 / 3, 1.25, 0.1)
_AXES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _smoothed(kind: str) -> Judge:
    """Cubic and Lanczos weights are of either sign: the terms are summed by their magnitudes.

    PyTorch interpolates uint8 in 16-bit fixed point where the processor has AVX2 and the layout suits it, and
    rounds between the dimensions: its own result may be off by one from the rounded real number.
    """
    return Judge(
        accumulates=True,
        terms=resized(2, _AXES[2], kind, smooth=True, magnitudes=True),
        exact_reals=resized(2, _AXES[2], kind, smooth=True),
        alternatives=documented(2, _AXES[2], kind, smooth=True),
    )


def _touched(arguments: Mapping[str, Any], axis: int, dims: int, radius: int) -> tuple[Mask, Mask]:
    """Along one axis, for each output place: which input places have a weight for certain, and which take
    part at all. The others of these lie where the weights become zero, or stand in at the border for such a
    place: whether they take part is up to the implementation and to the rounding of coordinates."""
    image = arguments["self"] if "self" in arguments else arguments["input"]
    size, scales = image.shape[2 + axis], arguments.get("scale_factors")
    scale = scales[axis] if scales else arguments.get(_AXES[dims][axis])
    sizes = arguments["output_size"]
    count = sizes[axis] if sizes else int(size * scale)
    place = np.arange(count)
    if arguments.get("align_corners"):
        at = place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    else:
        at = (place + 0.5) * (1.0 / scale if scale else size / count) - 0.5
        at = at if radius > 1 else np.maximum(at, 0.0)
    near, doubtful = np.zeros((count, size), dtype=bool), np.zeros((count, size), dtype=bool)
    for step in range(-radius - 1, radius + 2):
        neighbour = np.floor(at) + step
        apart = np.abs(neighbour - at)
        index = np.clip(neighbour, 0, size - 1).astype(np.int64)
        vanishing = (np.abs(apart - np.round(apart)) < 1e-5) & (apart > 0.5)
        takes_part = apart < radius + 1e-5
        near[place, index] |= takes_part
        doubtful[place, index] |= takes_part & vanishing
    if count == size:
        # PyTorch adds the place itself a second time, with weight zero.
        doubtful |= np.eye(size, dtype=bool)
    return near & ~doubtful, near


def _weighted(dims: int, kind: str) -> Judge:
    """Weights are functions of coordinates, whose rounding changes them by units in the last place of the
    coordinate, not of the weight: what a neighbour contributes by it goes with the neighbour's magnitude."""
    radius = {"linear": 1, "cubic": 2}[kind]

    def window_maximum(arguments: Mapping[str, Any]) -> Array:
        image = arguments["self"] if "self" in arguments else arguments["input"]
        # A bound is known where all that takes part is finite.
        magnitude: Array = np.where(np.isfinite(image), np.abs(image), np.nan)
        for axis in range(dims):
            near = _touched(arguments, axis, dims, radius)[1]
            last = np.moveaxis(magnitude, 2 + axis, -1)
            rows = [np.where(row, last, 0.0).max(axis=-1, initial=0.0) for row in near]
            magnitude = np.moveaxis(np.stack(rows, axis=-1), -1, 2 + axis)
        return magnitude

    def zero_times_infinity(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        # Neither PyTorch nor ONNX says whether a neighbour of weight zero takes part; 0 · inf is NaN
        # (IEEE 754-2019 §7.2).
        image = arguments["self"] if "self" in arguments else arguments["input"]
        wild = (~np.isfinite(image.astype(np.float64))).astype(np.float64)
        if not wild.any():
            return [None]
        counts = [wild, wild]
        for axis in range(dims):
            touched = _touched(arguments, axis, dims, radius)
            counts = [
                np.moveaxis(np.moveaxis(count, 2 + axis, -1) @ mask.T.astype(np.float64), -1, 2 + axis)
                for count, mask in zip(counts, touched, strict=True)
            ]
        return [np.asarray(counts[1] > counts[0])]

    return Judge(
        terms=window_maximum,
        undefined=Allowance("a neighbour of weight zero times infinity", zero_times_infinity),
        exact_reals=resized(dims, _AXES[dims], kind, smooth=False),
        alternatives=documented(dims, _AXES[dims], kind, smooth=False),
    )


def _resized(d: Draw, dims: int) -> tuple[list[int], list[int], list[float]]:
    """Input sizes, and output sizes with the scales that they follow from."""
    high = 9 if dims < 3 else 5
    inputs = [d.size(1, high) for _ in range(dims)]
    if dims < 3 and d.choose(False, False, False, True):
        inputs[d.integer(0, dims - 1)] = d.map_size()
    scales = [d.choose(*(s for s in _SCALES if int(n * s) >= 1)) for n in inputs]
    return inputs, [int(n * s) for n, s in zip(inputs, scales, strict=True)], scales


def _other_size(d: Draw, size: int, high: int) -> int:
    """An output size that does not follow from a scale; for a feature map more often a part of it."""
    if size < 12:
        return d.size(1, high)
    return d.choose(*(size // part for part in (7, 2, 4, 13) if size % part == 0), 64, 7, 1, 9)


def _image(d: Draw, inputs: Sequence[int]) -> Any:
    return d.tensor((d.choose(1, 2, 1, 2, 1, 3, 1, 0), d.choose(1, 3, 2, 4), *inputs))


def _size_arguments(dims: int, align: bool, smooth: bool, d: Draw) -> Arguments:
    inputs, outputs, scales = _resized(d, dims)
    kind = d.choose("none", "matching", "matching", "other")
    if kind != "matching":
        outputs = [_other_size(d, size, 9 if dims < 3 else 5) for size in inputs]
    if kind == "other" and smooth:
        # Smoothing kernels look for the window where the scale puts it, and read beyond the input's end.
        outputs = [min(o, int(n * s)) for o, n, s in zip(outputs, inputs, scales, strict=True)]
    arguments = {"self": _image(d, inputs), "output_size": outputs}
    if align:
        arguments["align_corners"] = d.boolean()
    for name, scale in zip(_AXES[dims], scales, strict=True):
        arguments[name] = d.choose(OMIT, None) if kind == "none" else d.choose(scale, scale, scale, None)
    return arguments


def _size_or_scale_arguments(dims: int, align: bool, d: Draw) -> Arguments:
    inputs, outputs, scales = _resized(d, dims)
    scaled = d.boolean()
    if not scaled:
        outputs = [_other_size(d, size, 17 if dims < 3 else 5) for size in inputs]
    return {
        "input": _image(d, inputs),
        "output_size": None if scaled else outputs,
        "scale_factors": scales if scaled else None,
        **({"align_corners": d.boolean()} if align else {}),
    }


def _upsample(name: str, dims: int, dtypes: Sequence[str], judge: Judge, *, align: bool) -> None:
    ops.case(name, dtypes=dtypes, judge=judge)(partial(_size_arguments, dims, align, name.endswith("_aa")))
    ops.case(f"{name}.vec", dtypes=dtypes, judge=judge)(partial(_size_or_scale_arguments, dims, align))


for _dims in (1, 2, 3):
    for _kind in ("upsample_nearest", "_upsample_nearest_exact"):
        _upsample(f"{_kind}{_dims}d", _dims, (*FLOATS, "uint8"), EXACT, align=False)
_upsample("upsample_linear1d", 1, FLOATS, _weighted(1, "linear"), align=True)
_upsample("upsample_bilinear2d", 2, (*FLOATS, "uint8"), _weighted(2, "linear"), align=True)
_upsample("upsample_trilinear3d", 3, FLOATS, _weighted(3, "linear"), align=True)
_upsample("upsample_bicubic2d", 2, (*FLOATS, "uint8"), _weighted(2, "cubic"), align=True)
_upsample("_upsample_bilinear2d_aa", 2, (*FULL_FLOATS, "uint8"), _smoothed("linear"), align=True)
_upsample("_upsample_bicubic2d_aa", 2, (*FULL_FLOATS, "uint8"), _smoothed("cubic"), align=True)
_upsample("_upsample_lanczos2d_aa", 2, (*FULL_FLOATS, "uint8"), _smoothed("lanczos"), align=True)

_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_NEAREST_MODE, _CUBIC_MODE = 1, 2


def _decided_by_rounding(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Coordinates of which rounding decides to which pixel they belong.

    These are reflected from far away, or lie halfway between the centres of two pixels but for what rounding in
    the grid's dtype moves them by. A coordinate exactly halfway is defined.
    """
    grid, data = arguments["grid"], arguments["input"]
    with np.errstate(all="ignore"):
        exact = grid.astype(np.float64)
        # The last coordinate belongs to the last axis.
        sizes = np.asarray(data.shape[:1:-1], np.float64)
        uncertain = np.zeros(grid.shape[:-1], bool)
        if arguments["padding_mode"] == _REFLECTION:
            reach = np.abs(exact).max(axis=-1, initial=0.0) * max(data.shape[2:], default=1)
            uncertain |= reach >= 2.0**31
        if arguments["interpolation_mode"] == _NEAREST_MODE:
            aligned = arguments["align_corners"]
            place = (exact + 1) / 2 * (sizes - 1) if aligned else ((exact + 1) * sizes - 1) / 2
            off = np.abs(place - np.floor(place) - 0.5)
            rounding = 4 * (np.abs(exact) + 1) * sizes * 2.0 ** -PRECISION[str(grid.dtype)]
            uncertain |= ((off > 0) & (off <= rounding)).any(axis=-1)
    # Output: batch, channels, positions; grid: batch, positions, coordinates.
    return [np.broadcast_to(uncertain[:, None], expected[0].shape)]


def _unplaced_coordinates(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Mask coordinates that are not finite, for which PyTorch's kernels depart from the documentation: NaN is
    -1, and an infinity is out of bounds or beyond the border. They follow it unless the weights are computed from
    the coordinates (zeros, and cubic interpolation); it does not define the reflection of an infinity."""
    grid, padding = arguments["grid"], arguments["padding_mode"]
    with np.errstate(all="ignore"):
        # A coordinate that leaves the range when it is scaled is infinite to a kernel.
        grid = grid * np.asarray(max(arguments["input"].shape[2:], default=1), grid.dtype)
    mode = arguments["interpolation_mode"]
    if padding == _ZEROS and mode == _NEAREST_MODE:
        # No weights: what lies outside is padded.
        open_ = np.isnan(grid)
    elif mode == _CUBIC_MODE or padding == _ZEROS:
        open_ = ~np.isfinite(grid)
    elif padding == _REFLECTION:
        open_ = np.isinf(grid)
    else:
        return [None]
    return [np.broadcast_to(open_.any(axis=-1)[:, None], expected[0].shape)]


_SAMPLED = Judge(
    undefined=Allowance("a coordinate of which rounding decides the pixel", _decided_by_rounding),
    unsettled=Allowance(
        "A coordinate is not finite: PyTorch's kernel does not follow its documentation, by which NaN is -1 "
        "and what lies outside is padded, and ONNX's GridSample says nothing of it.",
        _unplaced_coordinates,
    ),
    # ((x + 1)·size - 1) / 2 is the place of x.
    coordinates=frozenset({"grid"}),
)


def _sampler(dims: int, d: Draw) -> Arguments:
    mode = d.choose(0, 1, 2) if dims == 2 else d.choose(0, 1)
    padding = d.choose(_ZEROS, _BORDER, _REFLECTION)
    # Reflecting from afar loses the place to rounding: nothing is left to compare there.
    near = (between(-1.25, 1.25), between(-3.0, 3.0))
    domain = d.choose(*near) if padding == _REFLECTION else d.choose(*near, ANY)
    batch, channels = d.choose((1, 1), (2, 3), (1, 2), (2, 1), (1, 3), (3, 2), (0, 2), (1, 0))
    positions = [d.size(0, 5) for _ in range(dims)]
    inputs = [d.size(1, 9 if dims == 2 else 5) for _ in range(dims)]
    return {
        "input": d.tensor((batch, channels, *inputs)),
        "grid": d.tensor((batch, *positions, dims), domain=domain),
        "interpolation_mode": mode,
        "padding_mode": padding,
        "align_corners": d.boolean(),
    }


ops.case("grid_sampler_2d", dtypes=FLOATS, judge=_SAMPLED)(partial(_sampler, 2))
ops.case("grid_sampler_3d", dtypes=FLOATS, judge=_SAMPLED)(partial(_sampler, 3))


@ops.case("grid_sampler", dtypes=FLOATS, judge=_SAMPLED)
def grid_sampler(d: Draw) -> Arguments:
    return _sampler(d.choose(2, 3), d)


@ops.case("affine_grid_generator", dtypes=FLOATS + INTS)
def affine_grid_generator(d: Draw) -> Arguments:
    dims = d.choose(2, 3)
    batch = d.choose(1, 2, 1, 3, 2, 0, 8, 17, 33, 64)
    least = 2 if d.dtype in ("float16", "bfloat16") else 0
    sizes = [d.size(least, 9 if dims == 2 else 5) for _ in range(dims)]
    return {
        "theta": d.tensor((batch, dims, dims + 1)),
        "size": [batch, d.integer(1, 3), *sizes],
        "align_corners": d.boolean(),
    }
