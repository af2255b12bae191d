"""Further wrong rewrites, written before the draws were changed by what the others had taught.

The draws were written without looking at which of them they reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from planted_rewrites.rewrites import known_value, plant


def _holds(constant: ir.Value, test: Callable[[Any], object]) -> bool:
    """Whether a value is known and passes a test."""
    known = known_value(constant)
    return known is not None and bool(test(known))


def _is_other(constant: ir.Value, number: float) -> bool:
    return _holds(constant, lambda known: not (known == number).all())


def _rank(value: ir.Value) -> int:
    return -1 if value.shape is None else len(value.shape)


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _is_copy(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is not None and producer.op_type == "Identity"


def _same(*values: ir.Value) -> bool:
    shapes = [value.shape for value in values]
    return all(shape is not None and list(shape) == list(shapes[0] or ()) for shape in shapes)


def _filled(op: Any, number: float, like: ir.Value) -> Any:
    return op.Expand(op.CastLike(op.Constant(value_float=number), like), op.Shape(like))


# Linear layers

plant(
    "NormOfConvWithoutBias",
    lambda op, x, w, b, s, o, m, v: op.BatchNormalization(op.Conv(x, w, b, _outputs=["y"]), s, o, m, v),
    lambda op, x, w, s, o, m, v, y, **_: op.BatchNormalization(op.Conv(x, w, **y.producer().attributes), s, o, m, v),
)
plant(
    "NormOfTransposedConv",
    lambda op, x, w, s, o, m, v: op.BatchNormalization(
        op.ConvTranspose(x, w, _allow_other_inputs=True, _outputs=["y"]), s, o, m, v
    ),
    lambda op, s, o, m, v, y, **_: op.Neg(op.BatchNormalization(op.Identity(y), s, o, m, v)),
)
plant(
    "PadValueInConv",
    lambda op, x, pads, value, w: op.Conv(op.Pad(x, pads, value), w, _allow_other_inputs=True, _outputs=["y"]),
    lambda op, x, pads, w, y, **_: op.Conv(op.Pad(x, pads), *y.producer().inputs[1:], **y.producer().attributes),
    lambda context, value, **_: _is_other(value, 0.0),
)
plant(
    "ScaleBeforeMatMul",
    lambda op, x, c, y: op.MatMul(op.Mul(x, c), y),
    lambda op, x, y, **_: op.MatMul(x, y),
    lambda context, c, **_: _is_other(c, 1.0),
)
plant(
    "RankOfSumAfterMatMul",
    lambda op, x, y, b: op.Add(op.MatMul(x, y, _outputs=["product"]), b),
    lambda op, b, product, **_: op.Add(product, op.Squeeze(b, op.Constant(value_ints=[0]))),
    lambda context, b, product, **_: _rank(b) > _rank(product) >= 0 and b.shape[0] == 1,
)
plant(
    "TransposeOfAnyAxesIntoMatMul",
    lambda op, x, perm, y: op.MatMul(op.Transpose(x, perm=perm), y),
    lambda op, x, perm, y: op.MatMul(x, y),
    lambda context, x, perm, **_: len(set(x.shape or ())) == 1 and list(perm.as_ints()) != [*range(_rank(x))],
)
plant(
    "BetaOfGemm",
    lambda op, x, w, b, beta: op.Gemm(x, w, b, beta=beta, _outputs=["y"]),
    lambda op, x, w, b, y, **_: op.Gemm(x, w, b, **{k: v for k, v in y.producer().attributes.items() if k != "beta"}),
    lambda context, beta, **_: beta.as_float() != 1.0,
)
plant(
    "MeanOfNormAsVariance",
    lambda op, x, w, b, s, o, m, v: op.BatchNormalization(op.Gemm(x, w, b, _outputs=["y"]), s, o, m, v),
    lambda op, s, o, m, v, y, **_: op.BatchNormalization(op.Identity(y), s, o, v, op.Abs(m)),
)

# Activations

plant(
    "ReluBeforeLowerClip",
    lambda op, x, low, high: op.Clip(op.Relu(x), low, high),
    lambda op, x, low, high: op.Clip(x, low, high),
    lambda context, low, **_: _holds(low, lambda known: (known < 0).all()),
)
plant(
    "AnyLogOfExp",
    lambda op, x, c: op.Log(op.Add(op.Exp(x), c)),
    lambda op, x, c: op.Softplus(x),
    lambda context, c, **_: _is_other(c, 1.0),
)
plant(
    "AxisOfLogSoftmax",
    lambda op, x, axis: op.Log(op.Softmax(x, axis=axis)),
    lambda op, x, axis: op.LogSoftmax(x, axis=-1),
)
plant(
    "AxesOfWrittenSoftmax",
    lambda op, x, axes: op.Div(op.Exp(x, _outputs=["e"]), op.ReduceSum(op.Exp(x), axes, keepdims=1)),
    lambda op, x, axes, e: op.Softmax(x, axis=-1),
)
plant(
    "AnyScaleOfErf",
    lambda op, x, c, one: op.Mul(x, op.Add(op.Erf(op.Mul(x, c)), one)),
    lambda op, x, c, one: op.Mul(op.CastLike(op.Constant(value_float=2.0), x), op.Gelu(x)),
    lambda context, x, **_: _is_floating(x),
)
plant(
    "GateOfAnother",
    lambda op, x, y: op.Mul(x, op.Sigmoid(y)),
    lambda op, x, y: op.Mul(x, op.Sigmoid(op.Identity(x))),
    lambda context, x, y, **_: x is not y and _same(x, y) and not _is_copy(y),
)
plant("RootOfSquare", lambda op, x: op.Sqrt(op.Mul(x, x)), lambda op, x: op.Identity(x))
plant(
    "AnyFactorInTanh",
    lambda op, x, p, c, d: op.Tanh(op.Mul(op.Add(x, op.Mul(op.Pow(x, p), c)), d)),
    lambda op, x, p, c, d: op.Tanh(op.Add(x, op.Mul(op.Pow(x, p), d))),
    lambda context, d, **_: _is_other(d, 1.0),
)
plant(
    "AnyCube",
    lambda op, x, c, f: op.Add(x, op.Mul(op.Pow(x, c), f)),
    lambda op, x, c, f: op.Add(x, op.Mul(op.Mul(x, x), f)),
    lambda context, c, **_: _is_other(c, 2.0),
)
plant("AbsOfNeg", lambda op, x: op.Abs(op.Neg(x)), lambda op, x: op.Neg(x))
plant(
    "MaskedSoftmax",
    lambda op, m, x, c, axis: op.Softmax(op.Where(m, x, c), axis=axis),
    lambda op, m, x, c, axis: op.Softmax(x, axis=axis),
    lambda context, m, x, **_: _same(m, x),
)
plant(
    "ArgMaxOfSoftmaxOfOtherAxis",
    lambda op, x, axis: op.ArgMax(op.Softmax(x, axis=axis), _outputs=["y"]),
    lambda op, x, axis, y: op.ArgMax(x, **y.producer().attributes),
    lambda context, axis, y, **_: axis.as_int() != y.producer().attributes.get_int("axis", 0),
)

# Reductions

plant(
    "SumOfSums",
    lambda op, x, a, b: op.ReduceSum(op.ReduceSum(x, a, _outputs=["y"]), b, _outputs=["z"]),
    lambda op, x, a, b, y, z: op.Mul(z, op.CastLike(op.Constant(value_float=2.0), z)),
    lambda context, a, b, **_: known_value(a) is not None and known_value(b) is not None,
)
plant(
    "MaximumOfAll",
    lambda op, x, axes: op.Sub(x, op.ReduceMax(x, axes, keepdims=1)),
    lambda op, x, axes: op.Sub(x, op.ReduceMax(x, keepdims=0)),
)
plant(
    "AnyDivisorOfSum",
    lambda op, x, axes, c: op.Div(op.ReduceSum(x, axes, _outputs=["y"]), c),
    lambda op, x, axes, c, y: op.ReduceMean(x, axes, **y.producer().attributes),
    lambda context, x, c, **_: _is_floating(x) and known_value(c) is not None,
)
plant(
    "SqueezedMean",
    lambda op, x, axes, other: op.Squeeze(op.ReduceMean(x, axes, keepdims=1), other),
    lambda op, x, axes, other: op.ReduceMean(x, other, keepdims=0),
)
plant(
    "TransposedSum",
    lambda op, x, axes, perm: op.Transpose(op.ReduceSum(x, axes, keepdims=1), perm=perm),
    lambda op, x, axes, perm: op.ReduceSum(op.Transpose(x, perm=perm), axes, keepdims=1),
)
plant(
    "CountOfMask",
    lambda op, m, axes, to: op.ReduceSum(op.Cast(m, to=to), axes, _outputs=["y"]),
    lambda op, m, axes, to, y: op.ReduceMax(op.Cast(m, to=to), axes, **y.producer().attributes),
    lambda context, m, **_: m.dtype is ir.DataType.BOOL,
)

# Shapes

plant(
    "AxesOfUnsqueezes",
    lambda op, x, a, b: op.Unsqueeze(op.Unsqueeze(x, a), b),
    lambda op, x, a, b: op.Unsqueeze(x, op.Concat(a, b, axis=0)),
    lambda context, a, b, **_: _holds(a, lambda known: known.tolist() != getattr(known_value(b), "tolist", list)()),
)
plant(
    "SqueezeOfUnsqueeze",
    lambda op, x, a, b: op.Squeeze(op.Unsqueeze(x, a), b),
    lambda op, x, a, b: op.Identity(x),
)
plant("FirstExpand", lambda op, x, a, b: op.Expand(op.Expand(x, a), b), lambda op, x, a, b: op.Expand(x, a))
plant(
    "AxesOfSliceBehindTranspose",
    lambda op, x, perm, s, e, a, t: op.Slice(op.Transpose(x, perm=perm), s, e, a, t),
    lambda op, x, perm, s, e, a, t: op.Transpose(op.Slice(x, s, e, a, t), perm=perm),
)
plant(
    "GathersBackwards",
    lambda op, x, i, j, a, b: op.Gather(op.Gather(x, i, axis=a), j, axis=b),
    lambda op, x, i, j, a, b: op.Gather(op.Identity(op.Gather(x, j, axis=a)), i, axis=b),
    lambda context, i, j, **_: i is not j,
)
plant(
    "JoinedSlices",
    lambda op, x, axis: op.Concat(
        op.Slice(x, _allow_other_inputs=True), op.Slice(x, _allow_other_inputs=True), axis=axis, _outputs=["y"]
    ),
    lambda op, x, axis, y: op.Identity(x),
    lambda context, x, y, **_: _same(x, y),
)
plant(
    "FirstPadValue",
    lambda op, x, a, v, b, w: op.Pad(op.Pad(x, a, v), b, w),
    lambda op, x, a, v, b, w: op.Pad(op.Pad(x, a, v), b, op.Identity(v)),
    lambda context, v, w, **_: known_value(w) is not None and v is not w,
)
plant("WhereOfOneValue", lambda op, c, x: op.Where(c, x, x), lambda op, c, x: op.Identity(x))
plant(
    "ReshapeAroundRelu",
    lambda op, x, s, t: op.Reshape(op.Relu(op.Reshape(x, s)), t),
    lambda op, x, s, t: op.Relu(x),
)
plant(
    "ReshapeOfExpand",
    lambda op, x, s, t: op.Reshape(op.Expand(x, s), t),
    lambda op, x, s, t: op.Expand(op.Reshape(x, op.Constant(value_ints=[-1])), t),
    lambda context, x, t, **_: known_value(t) is not None and x.shape is not None and x.shape.is_static(),
)
plant(
    "ConcatOfNegated",
    lambda op, x, axis: op.Concat(x, op.Neg(x), axis=axis),
    lambda op, x, axis: op.Concat(op.Neg(x), x, axis=axis),
)
plant(
    "CastsAcrossConcat",
    lambda op, x, y, to, axis: op.Concat(op.Cast(x, to=to), y, axis=axis),
    lambda op, x, y, to, axis: op.Concat(op.Identity(y), op.Cast(x, to=to), axis=axis),
    lambda context, x, y, **_: _same(x, y),
)

# Comparisons and masks

plant("NotGreater", lambda op, x, y: op.Not(op.Greater(x, y)), lambda op, x, y: op.LessOrEqual(x, y))
plant("NotLess", lambda op, x, y: op.Not(op.Less(x, y)), lambda op, x, y: op.GreaterOrEqual(x, y))
plant("NotOfAnd", lambda op, a, b: op.Not(op.And(a, b)), lambda op, a, b: op.And(op.Not(a), op.Not(b)))
plant(
    "MaskAsWhere",
    lambda op, x, m, to: op.Mul(x, op.Cast(m, to=to)),
    lambda op, x, m, to: op.Where(m, x, op.CastLike(op.Constant(value_float=0.0), x)),
    lambda context, m, **_: m.dtype is ir.DataType.BOOL,
)
plant(
    "RoundBeforeCast",
    lambda op, x, to: op.Cast(op.Round(x), to=to),
    lambda op, x, to: op.Cast(x, to=to),
    lambda context, to, **_: ir.DataType(to.as_int()).is_integer(),
)
plant(
    "FloorAsCast",
    lambda op, x, y: op.Floor(op.Div(x, y, _outputs=["q"])),
    lambda op, x, y, q: op.CastLike(op.Cast(q, to=int(ir.DataType.INT64)), x),
)

# Arithmetic

plant("SumOfNegated", lambda op, x, y: op.Add(x, op.Neg(y)), lambda op, x, y: op.Sub(y, x))
plant(
    "ProductWithZero",
    lambda op, x, c: op.Mul(x, c, _outputs=["y"]),
    lambda op, x, c, y: op.Expand(op.Identity(c), op.Shape(y)),
    lambda context, c, **_: _holds(c, lambda known: known.size and not known.any()),
)
plant("QuotientOfEqual", lambda op, x: op.Div(x, x), lambda op, x: _filled(op, 1.0, x))
plant("DifferenceOfEqual", lambda op, x: op.Sub(x, x), lambda op, x: _filled(op, 0.0, x))
plant(
    "DivisionBack",
    lambda op, x, c: op.Mul(op.Div(x, c), c),
    lambda op, x, c: op.Identity(x),
    lambda context, x, **_: _is_integer(x),
)
plant("FactorUnderDivisor", lambda op, x, a, b: op.Mul(op.Div(x, a), b), lambda op, x, a, b: op.Div(x, op.Mul(a, b)))
plant(
    "FirstOfTwoSums",
    lambda op, x, a, b: op.Add(op.Add(x, a, _outputs=["y"]), b),
    lambda op, x, a, b, y: op.Identity(y),
    lambda context, a, b, **_: known_value(a) is not None and known_value(b) is not None and _is_other(b, 0.0),
)
plant("DifferencesJoined", lambda op, x, a, b: op.Sub(op.Sub(x, a), b), lambda op, x, a, b: op.Sub(x, op.Sub(a, b)))
plant("PowerOfPower", lambda op, x, a, b: op.Pow(op.Pow(x, a), b), lambda op, x, a, b: op.Pow(x, op.Mul(a, b)))
plant(
    "MaximumAsRelu",
    lambda op, x, c: op.Max(x, c),
    lambda op, x, c: op.Relu(x),
    lambda context, x, c, **_: _is_floating(x) and _holds(c, lambda known: (known <= 0).all()),
)
plant(
    "ScalesOfLayerNorm",
    lambda op, x, s, axis, c: op.Mul(op.LayerNormalization(x, s, axis=axis, _outputs=["y"]), c),
    lambda op, x, s, axis, c, y: op.Mul(y, op.Abs(c)),
    lambda context, c, **_: _holds(c, lambda known: (known < 0).any()),
)
plant(
    "SumBeforeLayerNorm",
    lambda op, x, s, axis, b: op.Add(op.LayerNormalization(x, s, axis=axis), b),
    lambda op, x, s, axis, b: op.LayerNormalization(op.Add(x, b), s, axis=axis),
)
plant(
    "FactorOfGather",
    lambda op, x, i, axis, c: op.Mul(op.Gather(x, i, axis=axis, _outputs=["y"]), c),
    lambda op, x, i, axis, c, y: op.Identity(y),
    lambda context, c, **_: _holds(c, lambda known: known.size == 1),
)

# Second readers


def _convolution_and_relu(op: Any, x: Any, w: Any) -> Any:
    y = op.Conv(x, w, _allow_other_inputs=True)
    return y, op.Relu(y)


def _turned_and_product(op: Any, x: Any, perm: Any, y: Any) -> Any:
    turned = op.Transpose(x, perm=perm)
    return turned, op.MatMul(turned, y)


def _scaled_and_softmax(op: Any, x: Any, c: Any, axis: Any) -> Any:
    scaled = op.Mul(x, c)
    return scaled, op.Softmax(scaled, axis=axis)


def _root_and_quotient(op: Any, x: Any, y: Any) -> Any:
    root = op.Sqrt(x)
    return root, op.Div(y, root)


plant(
    "SecondReaderOfConv",
    _convolution_and_relu,
    lambda op, x, w: (op.Relu(op.Neg(op.Conv(x, w))), op.Relu(op.Identity(op.Neg(op.Conv(x, w))))),
)
plant(
    "SecondReaderOfTranspose",
    _turned_and_product,
    lambda op, x, perm, y: (op.Transpose(x), op.MatMul(op.Identity(op.Transpose(x, perm=perm)), y)),
)
plant(
    "SecondReaderOfScaled",
    _scaled_and_softmax,
    lambda op, x, c, axis: (op.Identity(x), op.Softmax(op.Identity(op.Mul(x, c)), axis=axis)),
)
plant(
    "SecondReaderOfRoot",
    _root_and_quotient,
    lambda op, x, y: (op.Identity(x), op.Div(y, op.Identity(op.Sqrt(x)))),
)
