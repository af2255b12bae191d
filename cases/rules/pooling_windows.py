"""Judge pooling by maximum: any maximum of the window is right, at any of its places.

PyTorch's documentation and ONNX's MaxPool leave open which of several equal elements is reported. It must lie in
the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from harness.compare.judge import Evidence, Mask, OutputRule
from harness.core.dtypes import Array

#: Per pooled dimension, whether an output position's window holds an input position: an array of shape
#: (planes or 1, output size, input size).
Windows: TypeAlias = Callable[[Evidence], list[Mask]]


def sliding(dims: int) -> Windows:
    """Windows of `max_pool`: stride, padding and dilation."""

    def windows(evidence: Evidence) -> list[Mask]:
        given = evidence.arguments
        kernel = _each(given["kernel_size"], dims)
        stride = _each(given.get("stride") or kernel, dims)
        padding, dilation = _each(given.get("padding", 0), dims), _each(given.get("dilation", 1), dims)
        found = []
        for axis, (i, o) in enumerate(_positions(evidence, dims)):
            step = i - (o * stride[axis] - padding[axis])
            inside = (step >= 0) & (step < dilation[axis] * kernel[axis])
            found.append(inside & (step % dilation[axis] == 0))
        return found

    return windows


def adaptive(dims: int) -> Windows:
    """Windows of `adaptive_max_pool`: from ⌊o·I/O⌋ up to ⌈(o+1)·I/O⌉, not included."""

    def windows(evidence: Evidence) -> list[Mask]:
        return [
            (i >= o * i.size // o.size) & (i < -(-(o + 1) * i.size // o.size)) for i, o in _positions(evidence, dims)
        ]

    return windows


def fractional(dims: int) -> Windows:
    """Windows of `fractional_max_pool`: at ⌊(o + u)·α⌋ - ⌊u·α⌋, α = (I - K)/(O - 1), the last one at the
    end, u being the plane's random sample; computed in the dtype, as PyTorch does."""

    def windows(evidence: Evidence) -> list[Mask]:
        kernel = _each(evidence.arguments["kernel_size"], dims)
        samples = evidence.arguments["random_samples"].reshape(-1, dims)
        kind = samples.dtype.type
        found = []
        for axis, (i, o) in enumerate(_positions(evidence, dims)):
            # The two-dimensional kernel takes the samples of width and height in this order.
            u = samples[:, 1 - axis if dims == 2 else axis].reshape(-1, 1, 1)
            room = i.size - kernel[axis]
            start = np.full((len(u), o.size, 1), room)
            if o.size > 1:
                alpha = kind(room) / kind(o.size - 1)
                first = ((o[:, :-1].astype(kind) + u) * alpha).astype(np.int64)
                start[:, :-1] = first - (u * alpha).astype(np.int64)
            found.append((i >= start) & (i < start + kernel[axis]))
        return found

    return windows


def maximum_of(windows: Windows) -> OutputRule:
    """The maximum; which of +0 and −0, if the window holds both, is open."""

    def rule(evidence: Evidence, output: int) -> Mask:
        expected, got = evidence.expected[output], evidence.got[output]
        wrong = _different(expected, got)
        if expected.dtype.kind not in "iub":
            masks = windows(evidence)
            for place in np.argwhere(~wrong & (np.signbit(expected) != np.signbit(got)) & (got == 0)):
                held = _window(evidence.arguments["self"], masks, tuple(place))
                wrong[tuple(place)] = not ((held == 0) & (np.signbit(held) == np.signbit(got[tuple(place)]))).any()
        return wrong

    return rule


def index_of(windows: Windows, *, values: int = 0) -> OutputRule:
    """Places in the flattened plane that lie in their window and hold the maximum. A dilated window may
    hold no element at all; its place is open."""

    def rule(evidence: Evidence, output: int) -> Mask:
        got, data = evidence.got[output], evidence.arguments["self"]
        masks = windows(evidence)
        sizes = tuple(mask.shape[2] for mask in masks)
        count = int(np.prod(sizes))
        wrong: Mask = np.asarray((got < 0) | (got >= count), dtype=bool)
        if not got.size:
            return wrong
        index = np.where(wrong, 0, got)
        places = np.indices(got.shape)[got.ndim - len(sizes) :]
        planes = np.arange(got.size).reshape(got.shape) // max(int(np.prod(got.shape[-len(sizes) :])), 1)
        empty = np.zeros(got.shape, dtype=bool)
        for mask, place, at in zip(masks, places, np.unravel_index(index, sizes), strict=True):
            plane = planes if len(mask) > 1 else np.zeros_like(planes)
            wrong |= ~mask[plane, place, at]
            empty |= ~np.asarray(mask.any(axis=2))[plane, place]
        held = data.reshape(-1, count)[planes, index]
        return np.asarray((wrong | _different(evidence.expected[values], held)) & ~empty)

    return rule


def unpooled(evidence: Evidence, output: int) -> Mask:
    """`max_unpool`: where several elements go to one place, PyTorch documents that any of them may stay."""
    expected, got = evidence.expected[output], evidence.got[output]
    wrong = _different(expected, got, signed=True)
    values, indices = evidence.arguments["self"], evidence.arguments["indices"]
    dims = len(evidence.arguments["output_size"])
    flat = got.shape[: got.ndim - dims]
    rows = (int(np.prod(flat)), -1)
    for plane, place in np.argwhere(wrong.reshape(*rows) if wrong.any() else np.zeros((0, 0))):
        rivals = values.reshape(rows)[plane][indices.reshape(rows)[plane] == place]
        one = got.reshape(rows)[plane, place]
        if rivals.size and not _different(rivals, np.full_like(rivals, one), signed=True).all():
            wrong.reshape(rows)[plane, place] = False
    return wrong


def _each(value: Any, dims: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _positions(evidence: Evidence, dims: int) -> Iterator[tuple[Array, Array]]:
    """Input positions along the last axis and output positions along the one before, per dimension."""
    data, result = evidence.arguments["self"], evidence.expected[0]
    for i, o in zip(data.shape[-dims:], result.shape[-dims:], strict=True):
        yield np.arange(i).reshape(1, 1, i), np.arange(o).reshape(1, o, 1)


def _window(data: Array, masks: Sequence[Mask], place: tuple[int, ...]) -> Array:
    """The elements of the window of one output element."""
    dims = len(masks)
    lead, spatial = place[: len(place) - dims], place[len(place) - dims :]
    plane = int(np.ravel_multi_index(lead, data.shape[:-dims])) if lead else 0
    chosen = [mask[plane if len(mask) > 1 else 0, o] for mask, o in zip(masks, spatial, strict=True)]
    return np.asarray(data[lead][np.ix_(*chosen)])


def _different(a: Array, b: Array, *, signed: bool = False) -> Mask:
    """Return the mask of unequal elements; NaN equals NaN, and zeros of either sign are equal unless `signed`."""
    different = np.asarray(a != b)
    if a.dtype.kind not in "iub":
        different = different & ~(np.isnan(a) & np.isnan(b))
        if signed:
            different = different | ((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
    return np.asarray(different)
