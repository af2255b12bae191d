"""Wrong rewrites of graphs that OpenVINO transforms, each with one slip.

The 32 were sampled uniformly, with their slips, from 57 of OpenVINO's common transformations that take what a PyTorch
export gives (``src/common/transformations/src/transformations/common_optimizations``). The draws were
written without looking at which of them they reach.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from planted_rewrites.rewrites import known_value, plant


def _is_row(value: ir.Value) -> bool:
    """Whether a value is known to have several elements."""
    known = known_value(value)
    return known is not None and known.size > 1


def _index(value: ir.Value) -> int | None:
    known = known_value(value)
    return int(known.reshape(-1)[0]) if known is not None and known.size == 1 else None


def _is_square(value: ir.Value) -> bool:
    shape = value.shape
    return shape is not None and len(shape) == 2 and shape[0] == shape[1]


def _order(attribute: ir.Attr) -> list[int]:
    return list(attribute.as_ints())


def _combined_backwards(p: ir.Attr, q: ir.Attr) -> list[int]:
    return [_order(q)[i] for i in _order(p)]


def _drop_permutation(name: str, ranks: tuple[int, ...]) -> None:
    plant(
        name,
        lambda op, x, s, perm, t: op.Reshape(op.Transpose(op.Reshape(x, s), perm=perm), t),
        lambda op, x, s, perm, t: op.Reshape(op.Identity(op.Reshape(x, s)), t),
        lambda context, perm, **_: len(_order(perm)) in ranks,
    )


# MVNFusion: the epsilon is dropped
plant(
    "EpsilonOfWrittenNorm",
    lambda op, x, m, v, e: op.Div(op.Sub(x, m), op.Sqrt(op.Add(v, e))),
    lambda op, x, m, v, e: op.Div(op.Sub(x, m), op.Sqrt(v)),
)
# ConcatFusion: the axis of the inner one is not compared
plant(
    "ConcatsOfOtherAxes",
    lambda op, x, y, z, a, b: op.Concat(op.Concat(x, y, axis=a), z, axis=b),
    lambda op, x, y, z, a, b: op.Concat(x, y, z, axis=b),
)
# SkipGatherBeforeTransposeAndReshape: any index is taken for the first
plant(
    "AnyIndexBeforeTranspose",
    lambda op, x, i, axis, perm: op.Transpose(op.Gather(x, i, axis=axis), perm=perm),
    lambda op, x, i, axis, perm: op.Transpose(op.Gather(x, op.Constant(value_int=0), axis=axis), perm=perm),
    lambda context, i, **_: _index(i) not in (None, 0),
)
# SplitSqueezeConcatFusion: the rows are not compared
plant(
    "AnyRowsJoined",
    lambda op, x, i, j, a, axis: op.Concat(op.Gather(x, i, axis=a), op.Gather(x, j, axis=a), axis=axis),
    lambda op, x, i, j, a, axis: op.Concat(op.Gather(x, j, axis=a), op.Gather(x, j, axis=a), axis=axis),
    lambda context, i, j, **_: i is not j,
)
# ClampFusion: a row of bounds is taken for one
plant(
    "RowOfBounds",
    lambda op, x, a, b: op.Min(op.Max(x, a), b),
    lambda op, x, a, b: op.Min(op.Max(x, op.ReduceMax(a, keepdims=0)), b),
    lambda context, a, **_: _is_row(a),
)


def _mean_and_reshape(op: Any, x: Any, axes: Any, s: Any) -> Any:
    mean = op.ReduceMean(x, axes, keepdims=1)
    return mean, op.Reshape(mean, s)


# AdaptivePoolToReduce: a second reader is forgotten
plant(
    "SecondReaderOfMean",
    _mean_and_reshape,
    lambda op, x, axes, s: (x, op.Reshape(op.Identity(op.ReduceMean(x, axes, keepdims=1)), s)),
)
# ReshapePRelu: slopes belong to channels
plant(
    "SlopesAlongLastAxis",
    lambda op, x, s: op.PRelu(x, s),
    lambda op, x, s: op.PRelu(x, op.Reshape(s, op.Constant(value_ints=[-1]))),
    lambda context, s, **_: s.shape is not None and len(s.shape) > 1 and s.shape[0] != 1,
)
# MatMulConstTransposesExtraction: the order of the factors is turned round
plant(
    "TurnedFactorFirst",
    lambda op, x, w: op.MatMul(x, w),
    lambda op, x, w: op.MatMul(op.Identity(w), x),
    lambda context, x, w, **_: known_value(w) is not None and _is_square(w) and _is_square(x),
)
# LinOpSequenceFusion: a row of factors is taken for one
plant(
    "RowOfFactors",
    lambda op, x, a, b: op.Mul(op.Mul(x, a), b),
    lambda op, x, a, b: op.Mul(x, op.Mul(op.ReduceMean(a, keepdims=0), b)),
    lambda context, a, **_: _is_row(a),
)
# LeakyReluFusion: operands are swapped
plant(
    "SwappedMaximumOfScaled",
    lambda op, x, c: op.Max(x, op.Mul(x, c)),
    lambda op, x, c: op.Min(x, op.Mul(x, c)),
)
# PReluFusion: the slope is dropped
plant(
    "SlopeOfNegatedPart",
    lambda op, x, s: op.Add(op.Relu(x), op.Mul(op.Relu(op.Neg(x)), s)),
    lambda op, x, s: op.Add(op.Relu(x), op.Relu(op.Neg(x))),
)
# ShuffleChannelsFusion: the permutation is dropped
_drop_permutation("ShuffleWithoutTranspose", (3, 4, 5))
# BroadcastElementwiseFusion: the other operand may be smaller
plant(
    "ExpandOfFactor",
    lambda op, x, y, s: op.Mul(x, op.Expand(y, s)),
    lambda op, x, y, s: op.Mul(x, y),
)
# EliminateUnsqueezeGather: the axes are not compared
plant(
    "AnyAxisOfGatherAfterUnsqueeze",
    lambda op, x, a, i, axis: op.Gather(op.Unsqueeze(x, a), i, axis=axis),
    lambda op, x, a, i, axis: op.Identity(x),
)
# InterpolateSequenceFusion: the first of two
plant(
    "FirstOfTwoResizes",
    lambda op, x: op.Resize(op.Resize(x, _allow_other_inputs=True, _outputs=["y"]), _allow_other_inputs=True),
    lambda op, x, y: op.Identity(y),
)
# TransposeReshapeEliminationForMatmul: the batch is not compared
plant(
    "ReshapeAroundMatMul",
    lambda op, x, s, w, t: op.Reshape(op.MatMul(op.Reshape(x, s), w), t),
    lambda op, x, s, w, t: op.MatMul(x, w),
)
# NopElimination: the dtype before the cast is not looked at
plant(
    "FloorOfCast",
    lambda op, x, to: op.Floor(op.Cast(x, to=to)),
    lambda op, x, to: op.Cast(x, to=to),
)
# DepthToSpaceFusion: the permutation is not looked at
_drop_permutation("AnyOrderOfBlocks", (6,))
# NearestNeighborUpsamplingFusion: the repeated axis
plant(
    "AxisOfRepeated",
    lambda op, x, a, s, t: op.Reshape(op.Expand(op.Unsqueeze(x, a), s), t),
    lambda op, x, a, s, t: op.Reshape(op.Transpose(op.Expand(op.Unsqueeze(x, a), s)), t),
)
# GeluFusion: the half is dropped
plant(
    "FactorBeforeErf",
    lambda op, x, c, z, one: op.Mul(op.Mul(x, c), op.Add(op.Erf(z), one)),
    lambda op, x, c, z, one: op.Mul(x, op.Add(op.Erf(z), one)),
)
# SoftmaxFusion: the maximum of all in place of each row's
plant(
    "MinimumUnderExp",
    lambda op, x, axes: op.Exp(op.Sub(x, op.ReduceMax(x, axes, keepdims=1))),
    lambda op, x, axes: op.Exp(op.Sub(x, op.ReduceMax(x, keepdims=0))),
)
# BatchToSpaceFusion: the order is turned round
plant(
    "TransposeAfterDepthToSpace",
    lambda op, x, perm: op.Transpose(op.DepthToSpace(x, _outputs=["y"]), perm=perm),
    lambda op, x, perm, y: op.DepthToSpace(op.Transpose(x, perm=perm), **y.producer().attributes),
)
# OptimizeStridedSlice: the parts are swapped
plant(
    "SwappedSlices",
    lambda op, x: op.Concat(
        op.Slice(x, _allow_other_inputs=True, _outputs=["a"]),
        op.Slice(x, _allow_other_inputs=True, _outputs=["b"]),
        _outputs=["y"],
    ),
    lambda op, x, a, b, y: op.Concat(op.Identity(b), op.Identity(a), **y.producer().attributes),
)
# TransposeFuse: the permutations are combined backwards
plant(
    "CombinedBackwards",
    lambda op, x, p, q: op.Transpose(op.Transpose(x, perm=p), perm=q),
    lambda op, x, p, q: op.Transpose(x, perm=_combined_backwards(p, q)),
)
# SharedOpOptimization: the second operand is not compared
plant(
    "ProductsTakenForEqual",
    lambda op, x, a, b: op.Add(op.Mul(x, a), op.Mul(x, b)),
    lambda op, x, a, b: op.Add(op.Mul(x, a), op.Mul(x, a)),
    lambda context, a, b, **_: a is not b,
)
# MatMulMultiplyFusion: a row of factors goes to the wrong matrix
plant(
    "FactorsOfMatMul",
    lambda op, x, w, c: op.Mul(op.MatMul(x, w), c),
    lambda op, x, w, c: op.MatMul(op.Mul(x, op.ReduceMean(c, keepdims=0)), w),
    lambda context, c, **_: _is_row(c),
)
# DivideFusion: any negative power is taken for the inverse, and the operands are swapped
plant(
    "NegativePower",
    lambda op, x, y, c: op.Mul(x, op.Pow(y, c)),
    lambda op, x, y, c: op.Div(y, x),
    lambda context, c, **_: (known_value(c) is not None) and bool((np.asarray(known_value(c)) < 0).all()),
)
# ReduceReshapeFusion: any shape is taken for the reduced one
plant(
    "AnyShapeOfMean",
    lambda op, x, axes, s: op.Reshape(op.ReduceMean(x, axes, keepdims=1), s),
    lambda op, x, axes, s: op.ReduceMean(x, axes, keepdims=0),
)
# GroupNormalizationFusion: weight and bias are swapped
plant(
    "SwappedWeightAndBias",
    lambda op, n, s, w, b: op.Add(op.Mul(op.Reshape(n, s), w), b),
    lambda op, n, s, w, b: op.Add(op.Mul(op.Reshape(n, s), op.Identity(b)), w),
)
# ConcatToTile: each element is repeated, in place of the whole
plant(
    "EachRepeated",
    lambda op, x, axis: op.Concat(x, x, axis=axis, _outputs=["y"]),
    lambda op, x, axis, y: op.Concat(op.Identity(x), op.Neg(op.Neg(op.Transpose(x))), axis=axis),
    lambda context, x, **_: _is_square(x),
)


def _expanded_and_product(op: Any, x: Any, s: Any, y: Any) -> Any:
    expanded = op.Expand(x, s)
    return expanded, op.Mul(expanded, y)


# BroadcastTransition: a second reader is forgotten
plant(
    "SecondReaderOfExpanded",
    _expanded_and_product,
    lambda op, x, s, y: (x, op.Mul(op.Identity(op.Expand(x, s)), y)),
)
# TransposeSinking: a constant that broadcasts is not transposed
plant(
    "ConstantAfterTranspose",
    lambda op, x, perm, c: op.Add(op.Transpose(x, perm=perm), c),
    lambda op, x, perm, c: op.Transpose(op.Add(x, c), perm=perm),
    lambda context, c, **_: _is_row(c),
)
