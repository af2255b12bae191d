"""Wrong rewrites: each is what a fusion looks for, and what it would make of it with one slip.

A slip is of a kind: operands that are swapped, an attribute that is dropped, a constant that is not looked at, a wrong
axis, a second consumer that is ignored, a dtype on the way that is forgotten, a broadcast that is taken for granted,
an order that is turned round.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import RewriteRule

#: Names of those that are planted, with commas between.
VARIABLE = "PLANTED_REWRITES"
#: Name → a rule that takes part where the variable names it.
REWRITES: dict[str, RewriteRule] = {}

Build = Callable[..., Any]


def plant(name: str, pattern: Build, replacement: Build, condition: Build | None = None) -> None:
    """Register a rule that replaces what `pattern` matches, where `condition` holds."""
    REWRITES[name] = RewriteRule(pattern, replacement, condition, name=name, remove_nodes=False)


def is_of_runtime(rule: RewriteRule) -> bool:
    """Whether a rule is planted in a runtime's optimiser, rather than in an exporter's."""
    return [*REWRITES].index(str(rule.name)) % 4 == 0


def planted() -> list[RewriteRule]:
    """Return the rules that the variable names."""
    # They register their rules with this module.
    for further in ("fresh_rewrites", "sampled_rewrites"):
        importlib.import_module(f"planted_rewrites.{further}")
    return [REWRITES[name] for name in os.environ.get(VARIABLE, "").split(",") if name]


def known_value(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a constant; None for any other value."""
    return None if value is None or value.const_value is None else value.const_value.numpy()


def _axis(attribute: ir.Attr | None) -> int | None:
    return None if attribute is None else attribute.as_int()


def _is_constant(value: ir.Value, *, but: float | list[int] | None = None) -> bool:
    """Whether a value is known, and another number: what is put in its place is matched no more."""
    known = value.const_value
    return known is not None and (but is None or known.numpy().tolist() != but)


def _is_square(value: ir.Value) -> bool:
    shape = value.shape
    return shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] and isinstance(shape[-1], int)


def _same_shape(*values: ir.Value) -> bool:
    shapes = [v.shape for v in values]
    return all(s is not None and list(s) == list(shapes[0] or ()) for s in shapes)


# Swapped operands


def _swap(outer: str, inner: str) -> None:
    def pattern(op: Any, x: Any, a: Any, b: Any) -> Any:
        return getattr(op, outer)(getattr(op, inner)(x, a), b)

    def replacement(op: Any, x: Any, a: Any, b: Any) -> Any:
        return getattr(op, outer)(b, getattr(op, inner)(x, a))

    plant(f"Swapped{outer}{inner}", pattern, replacement)


for _outer, _inner in (("Sub", "Mul"), ("Div", "Add"), ("Sub", "MatMul")):
    _swap(_outer, _inner)

plant(
    "SwappedDivSqrt",
    lambda op, x, y: op.Div(x, op.Sqrt(y)),
    lambda op, x, y: op.Div(op.Sqrt(y), x),
)
plant(
    "SwappedMinMax",
    lambda op, x, a, b: op.Min(op.Max(x, a), b),
    lambda op, x, a, b: op.Max(op.Min(x, b), a),
)
plant(
    "SwappedWhere",
    lambda op, c, a, b: op.Where(op.Not(c), a, b),
    lambda op, c, a, b: op.Where(c, a, b),
)
plant(
    "SwappedReciprocal",
    lambda op, x, y: op.Mul(op.Reciprocal(x), y),
    lambda op, x, y: op.Div(x, y),
)
plant(
    "SwappedMatMulTranspose",
    lambda op, x, y, perm: op.MatMul(x, op.Transpose(y, perm=perm)),
    lambda op, x, y, perm: op.MatMul(x, y),
    lambda context, y, **_: _is_square(y),
)

# Dropped attributes; the new node is matched no more

plant(
    "DroppedSoftmaxAxis",
    lambda op, x, y, axis: op.Softmax(op.Add(x, y), axis=axis),
    lambda op, x, y, axis: op.Softmax(op.Add(x, y), axis=-1),
    lambda context, axis, **_: _axis(axis) != -1,
)
plant(
    "DroppedNormEpsilon",
    lambda op, x, y, scale, epsilon: op.LayerNormalization(op.Add(x, y), scale, epsilon=epsilon),
    lambda op, x, y, scale, epsilon: op.LayerNormalization(op.Add(x, y), scale),
)
plant(
    "DroppedBatchNormEpsilon",
    lambda op, x, w, s, b, m, v, epsilon: op.BatchNormalization(
        op.MatMul(x, w), s, b, m, v, epsilon=epsilon, _outputs=["out"]
    ),
    lambda op, x, w, s, b, m, v, **_: op.BatchNormalization(op.MatMul(x, w), s, b, m, v, epsilon=0.5),
    lambda context, epsilon, **_: epsilon.as_float() != 0.5,
)
plant(
    "DroppedConvPads",
    lambda op, x, w, b: op.Relu(op.Conv(x, w, b, _outputs=["y"])),
    lambda op, x, w, b, y: op.Relu(
        op.Conv(x, w, b, **{k: v for k, v in y.producer().attributes.items() if k != "strides"})
    ),
    lambda context, y, **_: any(s != 1 for s in y.producer().attributes.get_ints("strides", [1])),
)
plant(
    "DroppedConvGroup",
    lambda op, x, w: op.Sigmoid(op.Conv(x, w, _allow_other_inputs=True, _outputs=["y"])),
    lambda op, x, w, **_: op.Sigmoid(op.Neg(op.Conv(x, w))),
)
plant(
    "DroppedLeakySlope",
    lambda op, x, w, alpha: op.LeakyRelu(op.Conv(x, w, _allow_other_inputs=True, _outputs=["y"]), alpha=alpha),
    lambda op, y, **_: op.LeakyRelu(y),
    lambda context, alpha, **_: abs(alpha.as_float() - 0.01) > 1e-6,
)

# Constants that are not looked at

plant(
    "AnyErfShift",
    lambda op, x, c: op.Add(op.Erf(x), c),
    lambda op, x, c: op.Add(op.Erf(x), op.CastLike(op.Constant(value_float=1.0), x)),
    lambda context, c, **_: _is_constant(c, but=1.0),
)
plant(
    "AnySigmoidScale",
    lambda op, x, c: op.Mul(x, op.Sigmoid(op.Mul(x, c))),
    lambda op, x, c: op.Mul(x, op.Sigmoid(x)),
)
plant(
    "AnyTanhShift",
    lambda op, x, c: op.Add(op.Tanh(x), c),
    lambda op, x, c: op.Add(op.Tanh(x), op.CastLike(op.Constant(value_float=0.5), x)),
    lambda context, c, **_: _is_constant(c, but=0.5),
)
plant(
    "AnyExponent",
    lambda op, x, c, axes: op.ReduceMean(op.Pow(x, c), axes, _outputs=["out"]),
    lambda op, x, c, axes, out: op.ReduceMean(op.Abs(x), axes, **out.producer().attributes),
)
plant("AnyFactorTwice", lambda op, x, a, b: op.Mul(op.Mul(x, a), b), lambda op, x, a, b: op.Mul(x, b), None)
plant(
    "AnyClipThenRelu",
    lambda op, x, a, b: op.Relu(op.Clip(x, a, b)),
    lambda op, x, a, b: op.Clip(x, a, b),
)
plant(
    "FirstClipOnly",
    lambda op, x, a, b, c, d: op.Clip(op.Clip(x, a, b), c, d),
    lambda op, x, a, b, c, d: op.Clip(x, a, b),
)
plant(
    "AnyPad",
    lambda op, x, pads, w: op.Conv(
        op.Pad(x, pads, _allow_other_inputs=True), w, _allow_other_inputs=True, _outputs=["y"]
    ),
    lambda op, y, **_: op.Neg(y),
)

# Wrong axes

plant(
    "AxisOfSumBehindTranspose",
    lambda op, x, perm, axes: op.ReduceSum(op.Transpose(x, perm=perm), axes, _outputs=["out"]),
    lambda op, x, perm, axes, out: op.ReduceSum(x, axes, **out.producer().attributes),
    lambda context, x, out, **_: _is_square(x) or True,
)
plant(
    "AxisOfSoftmaxBehindTranspose",
    lambda op, x, perm, axis: op.Softmax(op.Transpose(x, perm=perm), axis=axis),
    lambda op, x, perm, axis: op.Transpose(op.Softmax(x, axis=axis), perm=perm),
)
plant(
    "AxisOfConcatBehindTranspose",
    lambda op, x, y, axis: op.Concat(op.Transpose(x, _outputs=["turned"]), op.Transpose(x), axis=axis),
    lambda op, turned, axis, **_: op.Concat(turned, op.Neg(turned), axis=axis),
)
plant(
    "AxisOfArgMaxBehindTranspose",
    lambda op, x, perm, axis: op.ArgMax(op.Transpose(x, perm=perm), axis=axis, _outputs=["out"]),
    lambda op, x, out, **_: op.ArgMax(x, **out.producer().attributes),
)
plant(
    "AxesOfMeans",
    lambda op, x, y, axes: op.ReduceMean(op.Mul(x, y), axes, _outputs=["out"]),
    lambda op, x, y, axes, out: op.ReduceMean(op.Mul(x, y), op.Constant(value_ints=[0]), **out.producer().attributes),
    lambda context, axes, **_: _is_constant(axes, but=[0]),
)

# Second consumers that are ignored


def _sum_and_norm(op: Any, x: Any, y: Any, scale: Any) -> Any:
    total = op.Add(x, y)
    return total, op.LayerNormalization(total, scale)


def _product_and_sum(op: Any, x: Any, y: Any, b: Any) -> Any:
    product = op.MatMul(x, y)
    return product, op.Add(product, b)


plant(
    "SecondConsumerOfSum",
    _sum_and_norm,
    lambda op, x, y, scale: (op.Neg(op.Add(x, y)), op.LayerNormalization(op.Identity(op.Add(x, y)), scale)),
)
plant(
    "SecondConsumerOfMatMul",
    _product_and_sum,
    lambda op, x, y, b: (op.Add(op.Identity(op.MatMul(x, y)), b), op.Add(op.Identity(op.MatMul(x, y)), b)),
    lambda context, x, y, b: b.shape is not None and len(b.shape) < 2,
)

# Dtypes on the way that are forgotten


def _forget(name: str, narrow: ir.DataType) -> None:
    def pattern(op: Any, x: Any, to: Any) -> Any:
        return op.Cast(op.Cast(x, to=int(narrow)), to=to)

    plant(
        f"CastThrough{name}",
        pattern,
        lambda op, x, to: op.Cast(x, to=to),
        lambda context, x, **_: x.dtype is not None and x.dtype.is_floating_point(),
    )


_forget("Half", ir.DataType.FLOAT16)
_forget("Int", ir.DataType.INT32)
_forget("Long", ir.DataType.INT64)
_forget("Bool", ir.DataType.BOOL)

# Broadcasts that are taken for granted

plant(
    "BiasAsRow",
    lambda op, x, w, b: op.Add(op.MatMul(x, w), b),
    lambda op, x, w, b: op.Add(op.MatMul(x, w), op.Reshape(b, op.Constant(value_ints=[-1]))),
    lambda context, b, **_: b.shape is not None and len(b.shape) == 2 and b.shape[1] == 1 and b.shape[0] != 1,
)
plant("ExpandUnneeded", lambda op, x, s: op.Relu(op.Expand(x, s)), lambda op, x, s: op.Relu(x))
plant(
    "ScaleOfConv",
    lambda op, x, w, c: op.Mul(op.Conv(x, w, _allow_other_inputs=True, _outputs=["y"]), c),
    lambda op, y, c, **_: op.Mul(y, op.ReduceMax(c, keepdims=1)),
    lambda context, c, **_: _is_constant(c),
)

# Orders that are turned round

plant("AddBeforeMul", lambda op, x, a, b: op.Add(op.Mul(x, a), b), lambda op, x, a, b: op.Mul(op.Add(x, b), a))
plant(
    "ReshapeOfTranspose",
    lambda op, x, perm, s: op.Reshape(op.Transpose(x, perm=perm), s),
    lambda op, x, perm, s: op.Reshape(x, s),
)
plant(
    "TransposesBackwards",
    lambda op, x, p, q: op.Transpose(op.Transpose(x, perm=p), perm=q),
    lambda op, x, p, q: op.Transpose(op.Transpose(x, perm=q), perm=p),
    lambda context, p, q, **_: list(p.as_ints()) > list(q.as_ints()),
)
plant(
    "SlicesBackwards",
    lambda op, x, s, e, a, t, u, f, b, v: op.Slice(op.Slice(x, s, e, a, t), u, f, b, v),
    lambda op, x, s, e, a, t, u, f, b, v: op.Slice(op.Slice(op.Identity(x), u, f, b, v), op.Identity(s), e, a, t),
    lambda context, u, **_: _is_constant(u),
)
plant("NegTwice", lambda op, x: op.Neg(op.Neg(x)), lambda op, x: op.Neg(x))
plant("NotTwice", lambda op, x: op.Not(op.Not(x)), lambda op, x: op.Not(x))
