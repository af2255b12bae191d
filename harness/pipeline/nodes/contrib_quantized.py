"""Definitions of ONNX Runtime's quantised operators, after the documentation in their schemas.

An operator that returns integers is defined by the real numbers that it rounds: one half of a step between two integers
may be rounded either way, since scales are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.node_call import NodeCall
from harness.pipeline.nodes.pooling import average_pool

#: Returns the real numbers that an operator rounds to integers, and the zero point that tells their dtype; None for
#: what the text leaves to the runtime.
Reals = Callable[[NodeCall], tuple[Array, Array] | None]


def _real(call: NodeCall, place: int) -> Array:
    """Return the numbers that a quantised input means, whose scale and zero point are the next inputs."""
    codes, scale, zero = (call.given(place + i) for i in range(3))
    assert codes is not None
    assert scale is not None
    shift = np.zeros(()) if zero is None else zero.astype(np.float64)
    return np.asarray((codes.astype(np.float64) - shift.reshape(())) * scale.astype(np.float64).reshape(()))


def _steps(call: NodeCall, reals: Array, place: int) -> tuple[Array, Array] | None:
    """Return numbers in steps of the scale at a place, and the zero point behind it; of the first input without one."""
    scale, zero, first = call.given(place), call.given(place + 1), call.given(0)
    assert scale is not None
    assert first is not None
    if zero is None:
        zero = np.zeros((), first.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(reals / scale.astype(np.float64).reshape(()) + zero.astype(np.float64).reshape(())), zero


def _two(combine: Callable[[Array, Array], Array]) -> Reals:
    return lambda call: _steps(call, combine(_real(call, 0), _real(call, 3)), 6)


def _one(function: Callable[[NodeCall, Array], Array | None]) -> Reals:
    def reals(call: NodeCall) -> tuple[Array, Array] | None:
        found = function(call, _real(call, 0))
        return None if found is None else _steps(call, found, 3)

    return reals


def _leaky(call: NodeCall, x: Array) -> Array:
    return np.where(x >= 0, x, call.attribute("alpha", 0.01) * x)


def _sigmoid(call: NodeCall, x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(call: NodeCall, x: Array) -> Array | None:
    """Return the softmax along an axis; None for the old rule, by which all dimensions from the axis on are one."""
    axis = call.attribute("axis", -1)
    if call.attribute("opset") < 13 and axis % x.ndim != x.ndim - 1:
        return None
    powers: Array = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def _average(call: NodeCall, x: Array) -> Array | None:
    """Return the average of each window; None for a window that is larger than the padded input."""
    if call.attribute("channels_last", 0):
        x = np.moveaxis(x, -1, 1)
    kernel = call.attribute("kernel_shape")
    pads = call.attribute("pads", [0] * (2 * len(kernel)))
    padded = np.add(x.shape[2:], np.add(pads[: len(kernel)], pads[len(kernel) :]))
    if call.attribute("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and (padded < kernel).any():
        return None
    found = average_pool(NodeCall(call.node, [x], call.opset, "float64"))[0]
    return np.moveaxis(found, 1, -1) if call.attribute("channels_last", 0) else found


def _global_average(call: NodeCall, x: Array) -> Array | None:
    """Return the average over all positions; None for an input without positions."""
    if x.ndim < 3:
        return None
    over = tuple(range(1, x.ndim - 1)) if call.attribute("channels_last", 0) else tuple(range(2, x.ndim))
    return np.asarray(x.mean(over, keepdims=True))


def _where(call: NodeCall) -> tuple[Array, Array] | None:
    condition, scale, zero = call.given(0), call.given(7), call.given(8)
    assert condition is not None
    assert scale is not None
    assert zero is not None
    chosen = np.where(condition, _real(call, 1), _real(call, 4))
    return np.asarray(chosen / scale.astype(np.float64) + zero.astype(np.float64)), zero


def _concat(call: NodeCall) -> tuple[Array, Array] | None:
    scale, zero = call.given(0), call.given(1)
    assert scale is not None
    assert zero is not None
    parts = [_real(call, place) for place in range(2, len(call.inputs), 3)]
    joined = np.concatenate(parts, call.attribute("axis"))
    return np.asarray(joined / scale.astype(np.float64) + zero.astype(np.float64)), zero


def _gemm(call: NodeCall) -> tuple[Array, Array] | None:
    """Return the product in steps; None if the result is float."""
    zero, scale = call.given(8), call.given(7)
    if zero is None or scale is None:
        return None
    return np.asarray(_product(call) / scale.astype(np.float64) + zero.astype(np.float64)), zero


def _product(call: NodeCall) -> Array:
    """Return what QGemm computes before it is rounded: ``alpha · (A' · B' + C)`` in units of both scales."""
    left, b, b_scale, b_zero, more = _real(call, 0), call.given(3), call.given(4), call.given(5), call.given(6)
    assert b is not None
    assert b_scale is not None
    by_column = (-1, 1) if call.attribute("transB", 0) and b_scale.size > 1 else (1, -1)
    shift = np.zeros((1, 1)) if b_zero is None else b_zero.astype(np.float64).reshape(by_column)
    right = (b.astype(np.float64) - shift) * b_scale.astype(np.float64).reshape(by_column)
    left = left.T if call.attribute("transA", 0) else left
    right = right.T if call.attribute("transB", 0) else right
    found = left @ right
    if more is not None:
        a_scale = call.given(1)
        assert a_scale is not None
        found = found + more.astype(np.float64) * (a_scale.astype(np.float64) * b_scale.astype(np.float64))
    return np.asarray(call.attribute("alpha", 1.0) * found)


#: Operator → the real numbers that it rounds.
REALS: Mapping[str, Reals] = {
    "QLinearAdd": _two(np.add),
    "QLinearMul": _two(np.multiply),
    "QLinearLeakyRelu": _one(_leaky),
    "QLinearSigmoid": _one(_sigmoid),
    "QLinearSoftmax": _one(_softmax),
    "QLinearAveragePool": _one(_average),
    "QLinearGlobalAveragePool": _one(_global_average),
    "QLinearWhere": _where,
    "QLinearConcat": _concat,
    "QGemm": _gemm,
}


def round_steps(call: NodeCall) -> Sequence[Array] | None:
    """Return the integers of an operator in `REALS`, rounded to even and saturated; None as there."""
    found = REALS[call.node.op_type](call)
    if found is None:
        return [_product(call).astype(np.float32)] if call.node.op_type == "QGemm" and call.given(7) is None else None
    reals, zero = found
    limits = np.iinfo(zero.dtype)
    return [np.clip(np.rint(reals), limits.min, limits.max).astype(zero.dtype)]


def dequantize_linear(call: NodeCall) -> Sequence[Array] | None:
    """Return ``(x - zero point) · scale``, by axis if the node has one."""
    x, scale, zero = (call.given(i) for i in range(3))
    assert x is not None
    assert scale is not None
    axis = call.attribute("axis")
    shape = [-1 if i == (axis or 0) % x.ndim else 1 for i in range(x.ndim)] if scale.size > 1 else []
    shift = 0.0 if zero is None else zero.astype(np.float64).reshape(shape)
    return [np.asarray((x.astype(np.float64) - shift) * scale.astype(np.float64).reshape(shape)).astype(scale.dtype)]


def unpack_bits(packed: Array, bits: int) -> Array:
    """Return the numbers of some bits each that bytes hold along the last dimension, the low bits first."""
    each = np.unpackbits(packed.astype(np.uint8), axis=-1, bitorder="little")
    usable = each.shape[-1] // bits * bits
    grouped = each[..., :usable].reshape(*packed.shape[:-1], -1, bits)
    return np.asarray((grouped.astype(np.int64) << np.arange(bits)).sum(-1))
