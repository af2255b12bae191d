"""Definitions of pooling: onnx's reference evaluator takes NaN for padding, or counts windows in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.node_call import Formula, NodeCall, widen


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling operator.

    Attributes:
        counts: Number of windows of each dimension.
        around: Elements of padding before and behind the data, of each dimension; behind it also those that a window
            covers beyond the padding, if the number of windows is rounded up.
        beyond: How many of the elements behind the data are beyond the padding.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    counts: tuple[int, ...]
    around: tuple[tuple[int, int], ...]
    beyond: tuple[int, ...]

    @classmethod
    def of(cls, call: NodeCall, sizes: Sequence[int]) -> _Windows:
        """Return the windows of a node over data of some sizes."""
        kernel, rank = call.attribute("kernel_shape"), len(sizes)
        strides, dilations = (call.attribute(n, [1] * rank) for n in ("strides", "dilations"))
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        mode = call.attribute("auto_pad", b"NOTSET")
        # With VALID the number is rounded down, and with SAME there is nothing to round.
        up = bool(call.attribute("ceil_mode", 0)) and mode == b"NOTSET"
        counts, around, beyond = [], [], []
        for i, (size, span, stride) in enumerate(zip(sizes, spans, strides, strict=True)):
            before, behind = _padding(call, mode, i, size, span, stride, rank)
            room = size + before + behind - span
            count = -(-room // stride) + 1 if up else room // stride + 1
            if up and (count - 1) * stride >= size + before:
                # A window that begins behind the data is none.
                count -= 1
            end = (count - 1) * stride + span - size - before
            counts.append(count)
            around.append((before, max(behind, end)))
            beyond.append(max(end - behind, 0))
        return cls(kernel, strides, dilations, tuple(counts), tuple(around), tuple(beyond))

    def padded(self, x: Array, filler: Any) -> Array:
        """Return the data with its padding."""
        return np.pad(x, [(0, 0), (0, 0), *self.around], constant_values=filler)

    def cuts(self) -> Iterator[Any]:
        """Yield for each place in a window the index that selects its element in all windows."""
        for offset in np.ndindex(*self.kernel):
            steps = zip(offset, self.dilations, self.strides, self.counts, strict=True)
            yield (..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in steps))

    def sums(self, padded: Array) -> Array:
        """Return the sum over each window."""
        return np.asarray(sum(padded[cut] for cut in self.cuts()))


def _padding(call: NodeCall, mode: bytes, place: int, size: int, span: int, stride: int, rank: int) -> tuple[int, int]:
    if mode == b"VALID":
        return 0, 0
    if mode == b"NOTSET":
        pads = call.attribute("pads", [0] * (2 * rank))
        return pads[place], pads[rank + place]
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if mode == b"SAME_UPPER" else (more, less)


def _max_pool(call: NodeCall) -> Sequence[Array] | None:
    """Choose the first of the largest elements of each window; indices count through batches and channels."""
    x = call.given(0)
    assert x is not None
    by_columns = bool(call.attribute("storage_order", 0)) and len(call.node.output) > 1
    if by_columns and x.shape[:2] != (1, 1):
        raise ValueError("the text does not say how indices by columns count batches and channels")
    windows = _Windows.of(call, x.shape[2:])
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    padded = windows.padded(x, lowest)
    numbered = np.arange(x.size).reshape(x.shape, order="F" if by_columns else "C")
    places = windows.padded(numbered, -1)
    result, chosen = padded[:0], places[:0]
    for cut in windows.cuts():
        if not result.size:
            result, chosen = padded[cut], places[cut]
            continue
        # Padding is never chosen; of equal elements the first is.
        better = (places[cut] >= 0) & ((padded[cut] > result) | (chosen < 0) | np.isnan(padded[cut]))
        result = np.where(better, padded[cut], result)
        chosen = np.where(better, places[cut], chosen)
    return [result, chosen][: len(call.node.output)]


def average_pool(call: NodeCall) -> list[Array]:
    """Divide the sum of each window by the number of its elements, or of those and its padding."""
    x = call.given(0)
    assert x is not None
    windows = _Windows.of(call, x.shape[2:])
    counts_padding = bool(call.attribute("count_include_pad", 0))
    if counts_padding and any(windows.beyond):
        raise ValueError("the text does not say whether elements beyond the padding count")
    ones = np.ones((1, 1, *x.shape[2:]))
    counted = windows.sums(windows.padded(ones, 1.0 if counts_padding else 0.0))
    wide = widen(x)
    return [np.asarray(windows.sums(windows.padded(wide, 0)) / counted).astype(x.dtype)]


def _lp_pool(call: NodeCall) -> Sequence[Array] | None:
    """Return the p-norm of each window, whose padding adds nothing."""
    x, order = call.given(0), call.attribute("p", 2)
    assert x is not None
    windows = _Windows.of(call, x.shape[2:])
    # Powers may leave the range of the node's dtype.
    powers = np.abs(x) ** np.asarray(order, x.dtype)
    return [np.asarray(windows.sums(windows.padded(powers, 0)) ** np.asarray(1.0 / order, x.dtype)).astype(x.dtype)]


def _over_all(reduce: Callable[[NodeCall, Array, tuple[int, ...]], Array]) -> Formula:
    """Return the formula of an operator that pools all of each channel."""

    def compute(call: NodeCall) -> Sequence[Array] | None:
        x = call.given(0)
        assert x is not None
        return [np.asarray(reduce(call, widen(x), tuple(range(2, x.ndim)))).astype(x.dtype)]

    return compute


def _norm(call: NodeCall, x: Array, axes: tuple[int, ...]) -> Array:
    order = call.attribute("p", 2)
    return np.asarray((np.abs(x) ** order).sum(axes, keepdims=True) ** (1.0 / order))


POOLING: dict[str, Formula] = {
    "MaxPool": _max_pool,
    "AveragePool": average_pool,
    "LpPool": _lp_pool,
    "GlobalMaxPool": _over_all(lambda call, x, axes: x.max(axes, keepdims=True)),
    "GlobalLpPool": _over_all(_norm),
}
