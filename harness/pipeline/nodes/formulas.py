"""Definitions of ONNX operators in NumPy, for operators that onnx's reference evaluator gets wrong or inexact.

Each formula follows the operator's text, in a form that keeps its digits, and a test shows the evaluator's departure
from it. Runtimes approximate elementary functions, and onnx's evaluator is not a judge of itself: these formulas share
no code with a runtime's kernel. NumPy's functions take a `longdouble`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from harness.core.dtypes import Array
from harness.pipeline.nodes.further_formulas import FURTHER
from harness.pipeline.nodes.node_call import Formula, NodeCall
from harness.pipeline.nodes.pooling import POOLING
from harness.pipeline.nodes.recurrent import RECURRENT


def _unary(function: Callable[[Array], Array]) -> Formula:
    def compute(call: NodeCall) -> Sequence[Array] | None:
        x = call.given(0)
        if x is None or x.dtype.kind not in "fV":
            return None
        return [np.asarray(function(x)).astype(x.dtype)]

    return compute


def _sigmoid(x: Array) -> Array:
    """1/(1+exp(-x)), without the overflow of the exponential."""
    small = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return found


def _hard_swish(x: Array) -> Array:
    found: Array = x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1)
    return found


def _prelu(call: NodeCall) -> Sequence[Array] | None:
    """Return ``x`` for zero and above, where the evaluator multiplies zero."""
    x, slope = call.given(0), call.given(1)
    if x is None or slope is None:
        return None
    return [np.where(x < 0, slope * x, x).astype(x.dtype)]


def _matmul(call: NodeCall) -> Sequence[Array] | None:
    """Multiply integers in their own dtype; the evaluator is right for floats."""
    a, b = call.given(0), call.given(1)
    if a is None or b is None or a.dtype.kind not in "iu":
        return None
    return [np.asarray(np.matmul(a, b))]


def _gemm(call: NodeCall) -> Sequence[Array] | None:
    """Compute ``Y = alpha * A' * B' + beta * C`` to the letter: a factor of zero makes NaN of an infinity, while the
    evaluator skips the scaled term. Integers stay in their own dtype, while the evaluator multiplies them by a
    float."""
    a, b, c = (call.given(i) for i in range(3))
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if a is None or b is None:
        return None
    left, right = (a.T if call.attribute("transA", 0) else a), (b.T if call.attribute("transB", 0) else b)
    if a.dtype.kind in "iu":
        if alpha != 1 or beta != 1:
            return None
        product = np.asarray(np.matmul(left, right))
        return [product if c is None else (product + c).astype(a.dtype)]
    if beta != 0 or c is None:
        return None
    wide = a.dtype.type if a.dtype.kind == "f" and a.dtype.itemsize >= 8 else np.float64
    product = np.matmul(left.astype(wide), right.astype(wide)) * wide(alpha)
    return [(product + c.astype(wide) * wide(beta)).astype(a.dtype)]


def _pow(call: NodeCall) -> Sequence[Array] | None:
    """Raise integers in their own dtype; the evaluator refuses negative exponents. A fraction is cut, as ``Cast`` cuts
    it; zero to a negative power is not an integer.

    Floats as IEEE 754 has them: NumPy takes the square root for an exponent of a half, which is NaN for -inf.
    """
    base, exponent = call.given(0), call.given(1)
    if base is not None and exponent is not None and base.dtype.kind in "fV":
        wide = base.dtype if base.dtype == np.longdouble else np.dtype(np.float64)
        return [np.asarray(np.float_power(base.astype(wide), exponent.astype(wide))).astype(base.dtype)]
    if base is None or exponent is None or base.dtype.kind not in "iu" or exponent.dtype.kind not in "iu":
        return None
    base, power = np.broadcast_arrays(base, exponent)
    below = power < 0
    if (below & (base == 0)).any():
        return None
    found = np.power(base, np.where(below, 0, power).astype(base.dtype), dtype=base.dtype)
    # Of -1 and 1 the reciprocal is the number itself.
    own = np.where(power % 2 == 0, 1, base)
    inverse = np.where(np.abs(base) == 1, own, 0)
    return [np.where(below, inverse, found).astype(base.dtype)]


ELEMENTWISE: dict[str, Formula] = {
    "Exp": _unary(np.exp),
    "Gemm": _gemm,
    "HardSwish": _unary(_hard_swish),
    "Log": _unary(np.log),
    "MatMul": _matmul,
    "PRelu": _prelu,
    "Pow": _pow,
    "Reciprocal": _unary(lambda x: np.asarray(1 / x)),
    "Sigmoid": _unary(_sigmoid),
    "Sin": _unary(np.sin),
    "Cos": _unary(np.cos),
    "Softplus": _unary(lambda x: np.asarray(np.logaddexp(x, x.dtype.type(0)))),
    "Sqrt": _unary(np.sqrt),
    "Tanh": _unary(np.tanh),
}


def _erf(call: NodeCall) -> Sequence[Array]:
    (x,) = call.inputs
    assert x is not None
    wide = torch.from_numpy(np.array(x.astype(np.float64)))
    return [torch.erf(wide).numpy().reshape(x.shape).astype(x.dtype)]


def _gelu(call: NodeCall) -> Sequence[Array]:
    """Compute GELU by the distribution function, which keeps the digits that 1 + erf loses."""
    x = call.given(0)
    assert x is not None
    return [gelu(x, by_tanh=call.attribute("approximate", b"none") == b"tanh").astype(x.dtype)]


def gelu(x: Array, *, by_tanh: bool) -> Array:
    """Return GELU in float64, by the distribution function or by its approximation with tanh."""
    wide = torch.from_numpy(np.array(x.astype(np.float64)))
    found = torch.nn.functional.gelu(wide, approximate="tanh") if by_tanh else wide * torch.special.ndtr(wide)
    return np.asarray(found.numpy().reshape(x.shape))


def _clip(call: NodeCall) -> Sequence[Array] | None:
    """Clip with the smallest and the largest finite number of the dtype for omitted bounds; NaN stays."""
    if call.opset < 11:
        return None
    x, low, high = call.given(0), call.given(1), call.given(2)
    assert x is not None
    limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else ml_dtypes.finfo(call.dtype)  # type: ignore[no-untyped-call]
    least = np.asarray(limits.min if low is None else low).astype(x.dtype).reshape(())
    most = np.asarray(limits.max if high is None else high).astype(x.dtype).reshape(())
    return [np.minimum(np.maximum(x, least), most)]


def _scatter_elements(call: NodeCall) -> Sequence[Array] | None:
    """Scatter, and reject updates larger than the indices: ONNX asks for the same shape."""
    data, indices, updates = (call.given(i) for i in range(3))
    assert data is not None
    assert indices is not None
    assert updates is not None
    if indices.shape != updates.shape:
        raise ValueError("the shapes of indices and updates differ")
    axis = call.attribute("axis", 0)
    reduction = call.attribute("reduction", b"none")
    result = data.copy()
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        at = tuple(target)
        match reduction:
            case b"add":
                result[at] += updates[place]
            case b"mul":
                result[at] *= updates[place]
            case b"max":
                result[at] = np.maximum(result[at], updates[place])
            case b"min":
                result[at] = np.minimum(result[at], updates[place])
            case _:
                result[at] = updates[place]
    return [result]


def _gather_elements(call: NodeCall) -> Sequence[Array] | None:
    """Gather with indices of the data's rank; only the evaluator asks for the same other sizes."""
    data, indices = call.given(0), call.given(1)
    if data is None or indices is None or data.ndim != indices.ndim:
        return None
    axis = call.attribute("axis", 0) % data.ndim
    if any(n > size for i, (n, size) in enumerate(zip(indices.shape, data.shape, strict=True)) if i != axis):
        return None
    met = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
    counted = np.where(indices < 0, indices + data.shape[axis], indices)
    return [np.take_along_axis(data[met], counted, axis)]


def _cumsum(call: NodeCall) -> Sequence[Array]:
    """Sum along an axis that may be a tensor of one element: only the evaluator refuses it."""
    x, axis = call.given(0), call.given(1)
    assert x is not None
    assert axis is not None
    along = int(axis.reshape(-1)[0])
    if call.attribute("reverse", 0):
        x = np.flip(x, along)
    total = np.cumsum(x, along, dtype=x.dtype)
    if call.attribute("exclusive", 0):
        total = total - x if x.dtype.kind in "iu" else _shifted(total, along)
    return [np.flip(total, along) if call.attribute("reverse", 0) else total]


def _shifted(total: Array, axis: int) -> Array:
    moved = np.roll(total, 1, axis)
    first = [slice(None)] * total.ndim
    first[axis] = slice(0, 1)
    moved[tuple(first)] = 0
    return moved


def _reduce_log_sum_exp(call: NodeCall) -> Sequence[Array]:
    """Compute ReduceLogSumExp without overflow: the largest element is factored out of the sum."""
    x = call.given(0)
    assert x is not None
    axes, keep = call.given(1), bool(call.attribute("keepdims", 1))
    named = call.attribute("axes") if axes is None else axes.reshape(-1).tolist()
    if not named and call.attribute("noop_with_empty_axes", 0):
        return [x]
    over = tuple(named) if named else tuple(range(x.ndim))
    wide = x if x.dtype.kind == "f" and x.dtype.itemsize >= 8 else x.astype(np.float64)
    most = np.max(wide, axis=over, keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0.0)
    total = np.log(np.sum(np.exp(wide - most), axis=over, keepdims=True)) + most
    return [(total if keep else np.squeeze(total, over)).astype(x.dtype)]


def _pad(call: NodeCall) -> Sequence[Array] | None:
    """Negative amounts remove elements; the text does not say whether before or after others are reflected."""
    x, amounts = call.given(0), call.given(1)
    if x is None or amounts is None:
        return None
    value, axes = call.given(2), call.given(3)
    mode = call.attribute("mode", b"constant").decode()
    along = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes.reshape(-1)]
    around = [(0, 0)] * x.ndim
    for i, axis in enumerate(along):
        around[axis] = int(amounts[i]), int(amounts[len(along) + i])
    if mode == "reflect" and any(
        min(b, a) < 0 or max(b, a) >= max(n, 1) for (b, a), n in zip(around, x.shape, strict=True)
    ):
        raise ValueError("a reflection of elements that are removed, or beyond the data")
    cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(around, x.shape, strict=True))
    more = [(max(b, 0), max(a, 0)) for b, a in around]
    if mode == "constant":
        filler = x.dtype.type(0) if value is None else value.reshape(()).astype(x.dtype)
        return [np.pad(x[cut], more, constant_values=filler)]
    return [np.pad(x[cut], more, mode={"reflect": "reflect", "edge": "edge"}.get(mode, "wrap"))]  # type: ignore[call-overload]


def _log_softmax(call: NodeCall) -> Sequence[Array] | None:
    """Compute LogSoftmax directly: the evaluator's logarithm of the softmax underflows, and loses digits near 1."""
    x = call.given(0)
    assert x is not None
    if call.opset < 13 or not x.size:
        return None
    axis = call.attribute("axis", -1)
    first = np.expand_dims(np.argmax(x, axis), axis)
    below = x - np.take_along_axis(x, first, axis)
    others = np.exp(below)
    largest = np.take_along_axis(below, first, axis)
    np.put_along_axis(others, first, np.where(np.isnan(largest), largest, 0), axis)
    return [below - np.log1p(np.sum(others, axis, keepdims=True))]


def _lrn(call: NodeCall) -> Sequence[Array]:
    """Divide by sums of squares over neighbouring channels; the evaluator has sums for as many channels as batches."""
    x = call.given(0)
    assert x is not None
    alpha, beta, bias = (call.attribute(n, v) for n, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    size, channels = call.attribute("size"), x.shape[1]
    wide = x if x.dtype.kind == "f" and x.dtype.itemsize >= 8 else x.astype(np.float64)
    sums = np.zeros_like(wide)
    for channel in range(channels):
        first, last = max(0, channel - (size - 1) // 2), min(channels - 1, channel + size // 2)
        sums[:, channel] = np.square(wide[:, first : last + 1]).sum(1)
    return [np.asarray(wide / (bias + alpha / size * sums) ** beta).astype(x.dtype)]


def _conv(call: NodeCall) -> Sequence[Array] | None:
    """Convolve only elements that the kernel meets: the evaluator fills a dilated kernel with zeros, which turn
    infinities between them into NaN."""
    x, weight, bias = (call.given(i) for i in range(3))
    if x is None or weight is None or not x.size or not weight.size:
        return None
    rank, group = x.ndim - 2, call.attribute("group", 1)
    strides, dilations = (call.attribute(n, [1] * rank) for n in ("strides", "dilations"))
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    around = _conv_pads(call, x.shape[2:], spans, strides)
    wide = x.dtype.type if x.dtype.kind == "f" and x.dtype.itemsize >= 8 else np.float64
    padded = np.pad(x.astype(wide), [(0, 0), (0, 0), *around])
    counts = [(n - span) // s + 1 for n, span, s in zip(padded.shape[2:], spans, strides, strict=True)]
    inputs = padded.reshape(x.shape[0], group, -1, *padded.shape[2:])
    kernel = weight.astype(wide).reshape(group, -1, *weight.shape[1:])
    result = np.zeros((x.shape[0], group, kernel.shape[1], *counts), wide)
    for offset in np.ndindex(*weight.shape[2:]):
        steps = zip(offset, dilations, strides, counts, strict=True)
        cut: Any = (..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in steps))
        tap: Any = (..., *offset)
        result += np.einsum("bgi...,goi->bgo...", inputs[cut], kernel[tap])
    result = result.reshape(x.shape[0], -1, *counts)
    if bias is not None:
        result = result + bias.astype(wide).reshape(-1, *[1] * rank)
    return [result.astype(x.dtype)]


def _conv_pads(
    call: NodeCall, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Before and behind the data, of each dimension; as many positions as there are strides in it if padded
    to the same size."""
    mode = call.attribute("auto_pad", b"NOTSET")
    if mode == b"NOTSET":
        pads = call.attribute("pads", [0] * (2 * len(sizes)))
        return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))
    if mode == b"VALID":
        return [(0, 0)] * len(sizes)
    needed = [max((-(-n // s) - 1) * s + span - n, 0) for n, span, s in zip(sizes, spans, strides, strict=True)]
    less = [total // 2 for total in needed]
    more = [total - half for total, half in zip(needed, less, strict=True)]
    return list(zip(less, more, strict=True) if mode == b"SAME_UPPER" else zip(more, less, strict=True))


def _conv_transpose(call: NodeCall) -> Sequence[Array] | None:
    """Transpose a convolution whose output padding is below the stride or the dilation; the evaluator allows the stride
    alone."""
    x, weight, bias = (call.given(i) for i in range(3))
    assert x is not None
    assert weight is not None
    rank = x.ndim - 2
    if call.attribute("auto_pad", b"NOTSET") != b"NOTSET" or call.attribute("output_shape"):
        return None
    ones, zeros = [1] * rank, [0] * rank
    pads, more = call.attribute("pads", zeros * 2), call.attribute("output_padding", zeros)
    convolved = getattr(torch.nn.functional, f"conv_transpose{rank}d")(
        *(torch.from_numpy(array.astype(np.float64)) for array in (x, weight)),
        stride=tuple(call.attribute("strides", ones)),
        groups=call.attribute("group", 1),
        dilation=tuple(call.attribute("dilations", ones)),
    ).numpy()
    result = np.pad(convolved, [(0, 0), (0, 0), *((0, size) for size in more)])
    ends = [size - pad for size, pad in zip(result.shape[2:], pads[rank:], strict=True)]
    kept: list[Any] = [slice(begin, end) for begin, end in zip(pads[:rank], ends, strict=True)]
    result = result[(..., *kept)]
    if bias is not None:
        result = result + bias.astype(np.float64).reshape(-1, *ones)
    return [result.astype(x.dtype)]


FORMULAS: dict[str, Formula] = (
    ELEMENTWISE
    | POOLING
    | RECURRENT
    | FURTHER
    | {
        "Erf": _erf,
        "Gelu": _gelu,
        "Clip": _clip,
        "Conv": _conv,
        "ScatterElements": _scatter_elements,
        "ConvTranspose": _conv_transpose,
        "CumSum": _cumsum,
        "GatherElements": _gather_elements,
        "LogSoftmax": _log_softmax,
        "LRN": _lrn,
        "Pad": _pad,
        "ReduceLogSumExp": _reduce_log_sum_exp,
    }
)
