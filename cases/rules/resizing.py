"""Interpolation in real numbers, by PyTorch's documentation rather than its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.core.dtypes import PRECISION, Array

#: Distance from a place, in input places, to its weight.
_Filter = Callable[[Array], Array]


def _triangle(x: Array) -> Array:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _cubic(a: float) -> _Filter:
    """Keys's cubic convolution (IEEE Trans. Acoustics, Speech, Signal Processing 29, 1981)."""

    def weight(x: Array) -> Array:
        x = np.abs(x)
        inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        outer = (((x - 5.0) * x + 8.0) * x - 4.0) * a
        return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))

    return weight


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3.0, np.sinc(x) * np.sinc(x / 3.0), 0.0)


#: Name → filter and its radius, without and with smoothing.
_PLAIN: Mapping[str, tuple[_Filter, int]] = {"linear": (_triangle, 1), "cubic": (_cubic(-0.75), 2)}
_SMOOTH: Mapping[str, tuple[_Filter, int]] = {
    "linear": (_triangle, 1),
    "cubic": (_cubic(-0.5), 2),
    "lanczos": (_lanczos, 3),
}


def _weights(size: int, count: int, scale: float | None, align: bool, kind: str, smooth: bool) -> Array:
    """Return the weight of each input place in each output place, NaN for none; shape ``[count, size]``."""
    if align:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = 1.0 / scale if scale else size / count
    weights = np.full((count, size), np.nan)
    if smooth:
        shape, radius = _SMOOTH[kind]
        wide = max(step, 1.0)
        for place in range(count):
            centre = step * (place + 0.5)
            first = max(int(centre - radius * wide + 0.5), 0)
            taken = np.arange(first, min(int(centre + radius * wide + 0.5), size))
            of_place = shape((taken - centre + 0.5) / wide)
            weights[place, taken] = of_place / of_place.sum() if of_place.sum() else 0.0
        return weights
    shape, radius = _PLAIN[kind]
    for place in range(count):
        at = place * step if align else (place + 0.5) * step - 0.5
        at = max(at, 0.0) if kind == "linear" else at
        taken = math.floor(at) + np.arange(1 - radius, radius + 1)
        inside = np.clip(taken, 0, size - 1)
        weights[place, inside] = 0.0
        np.add.at(weights[place], inside, shape(taken - at))
    return weights


def resized(
    dims: int, scales: tuple[str, ...], kind: str, *, smooth: bool, magnitudes: bool = False
) -> Callable[..., Array]:
    """Return a function that computes the real numbers of an interpolation from the arguments.

    Args:
        dims: Number of dimensions that are resized, the last ones.
        scales: Names of the arguments that hold their scales, if the call has no list of them.
        kind: ``linear``, ``cubic`` or ``lanczos``.
        smooth: Whether the filter widens with the step.
        magnitudes: Whether to compute the scale of errors instead: each pixel that takes part counts by its magnitude
            and by the largest weight of its place, since a rounded coordinate changes a weight by units of that.
    """

    def reals(arguments: Mapping[str, Any]) -> Array:
        image = arguments["self"] if "self" in arguments else arguments["input"]
        result: Array = image.astype(np.float64)
        result = np.abs(result) if magnitudes else result
        given, sizes = arguments.get("scale_factors"), arguments.get("output_size")
        for axis in range(dims):
            size = image.shape[2 + axis]
            scale = given[axis] if given else arguments.get(scales[axis])
            count = sizes[axis] if sizes else int(size * scale)
            weights = _weights(size, count, scale, bool(arguments.get("align_corners")), kind, smooth)
            if magnitudes:
                largest = np.nan_to_num(np.abs(weights)).max(axis=1, keepdims=True, initial=0.0)
                weights = np.where(np.isnan(weights), np.nan, largest)
            result = np.moveaxis(_weighted_sum(np.moveaxis(result, 2 + axis, -1), weights), -1, 2 + axis)
        return np.clip(result, 0.0, 255.0) if image.dtype == np.uint8 else result

    return reals


def _weighted_sum(values: Array, weights: Array) -> Array:
    """Sum over the last axis, without the places of no weight: zero times infinity would be NaN."""
    with np.errstate(all="ignore"):
        terms = np.where(np.isnan(weights), 0.0, values[..., np.newaxis, :] * weights)
    result: Array = terms.sum(-1)
    return result


def documented(
    dims: int, scales: tuple[str, ...], kind: str, *, smooth: bool
) -> Callable[[Mapping[str, Any], Sequence[Array]], list[Array | None]]:
    """Return the floating result of `resized` as another right answer, since PyTorch's kernels depart from it.

    The smoothing kernels read images of one column wrongly, and the others take a dimension whose size stays for one
    that is not scaled, whatever the scale says.
    """
    reals = resized(dims, scales, kind, smooth=smooth)

    def other(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
        (result,) = expected
        if str(result.dtype) not in PRECISION or not result.size:
            return [None]
        found = reals(arguments)
        with np.errstate(all="ignore"):
            return [found.astype(result.dtype) if found.shape == result.shape else None]

    return other
