"""Layers that are written out in elementary operators, as optimisers look for them."""

from __future__ import annotations

import math

from harness.core.invocation import Result, TensorSpec
from harness.generate.draw import OMIT
from harness.generate.programs import ProgramDraw, dtype_of, pattern


def _shape(p: ProgramDraw) -> tuple[int, ...]:
    return p.choose((2, 4), (1, 3, 4), (2, 3, 4), (2, 1, 3, 4), (3, 8))


def _scalar(p: ProgramDraw, value: float) -> float:
    """Draw the number that a rule looks for, or sometimes one near it."""
    return p.usually(value, value * (1 + 1e-4), value * 1.01, -value, round(value, 3))


@pattern("gelu", source="onnxruntime gelu_fusion.cc, bias_gelu_fusion.cc; onnxscript rules erfgelu")
def gelu(p: ProgramDraw) -> list[Result]:
    """x · 0.5 · (1 + erf(x / sqrt(2))), in either order, after a bias or not."""
    value: object = p.input(p.choose((2, 4), (1, 3, 4)))
    if p.sometimes():
        value = p.call("aten.add.Tensor", self=value, other=p.operand(p.usually((4,), (1,), (1, 4))))
    scaled = (
        p.call("aten.div.Scalar", self=value, other=_scalar(p, math.sqrt(2)))
        if p.choose(True, False)
        else p.call("aten.mul.Scalar", self=value, other=_scalar(p, 1 / math.sqrt(2)))
    )
    inner = p.call("aten.erf.default", self=scaled)
    one = p.call("aten.add.Scalar", self=inner, other=_scalar(p, 1.0))
    other = p.usually(value, scaled)
    if p.choose(True, False):
        half = p.call("aten.mul.Scalar", self=other, other=_scalar(p, 0.5))
        return [p.call("aten.mul.Tensor", self=half, other=one)]
    product = p.call("aten.mul.Tensor", self=other, other=one)
    return [p.call("aten.mul.Scalar", self=product, other=_scalar(p, 0.5))]


@pattern("quick-gelu", source="onnxruntime quick_gelu_fusion.cc; silu in onnxscript")
def quick_gelu(p: ProgramDraw) -> list[Result]:
    """x · sigmoid(1.702 x), and what is like it."""
    x = p.input(_shape(p))
    scaled = p.call("aten.mul.Scalar", self=x, other=_scalar(p, 1.702)) if p.usually(True, False) else x
    gate = p.call("aten.sigmoid.default", self=scaled)
    return [p.call("aten.mul.Tensor", self=p.usually(x, scaled), other=gate)]


@pattern("fast-gelu", source="onnxruntime fast_gelu_fusion.cc")
def fast_gelu(p: ProgramDraw) -> list[Result]:
    """0.5 x (1 + tanh(sqrt(2/π)(x + 0.044715 x³)))."""
    x = p.input(_shape(p))
    cube = p.call("aten.pow.Tensor_Scalar", self=x, exponent=p.usually(3, 3.0, 2))
    inner = p.call("aten.add.Tensor", self=x, other=p.call("aten.mul.Scalar", self=cube, other=_scalar(p, 0.044715)))
    scaled = p.call("aten.mul.Scalar", self=inner, other=_scalar(p, math.sqrt(2 / math.pi)))
    one = p.call("aten.add.Scalar", self=p.call("aten.tanh.default", self=scaled), other=1.0)
    return [p.call("aten.mul.Tensor", self=p.call("aten.mul.Scalar", self=x, other=_scalar(p, 0.5)), other=one)]


@pattern("layer-norm", source="onnxruntime layer_norm_fusion.cc; onnxscript rules layer_normalization")
def layer_norm(p: ProgramDraw) -> list[Result]:
    """(x - mean) / sqrt(mean((x - mean)²) + eps) · weight + bias, or one of its parts otherwise."""
    shape = _shape(p)
    x = p.input(shape)
    dims = p.usually([-1], [len(shape) - 1], [0], [-2, -1])
    mean = p.call("aten.mean.dim", self=x, dim=dims, keepdim=True)
    centred = p.call("aten.sub.Tensor", self=x, other=mean)
    square = p.call("aten.pow.Tensor_Scalar", self=centred, exponent=p.usually(2, 2.0, 4))
    variance = p.call("aten.mean.dim", self=square, dim=p.usually(dims, [-1]), keepdim=True)
    shifted = p.call("aten.add.Scalar", self=variance, other=p.usually(1e-5, 1e-3, 0.5, 1e-12))
    root = p.call("aten.sqrt.default", self=shifted)
    y = p.call("aten.div.Tensor", self=p.usually(centred, x), other=root)
    for name, absent in (("mul", 5), ("add", 4)):
        if p.integer(0, absent):
            y = p.call(f"aten.{name}.Tensor", self=y, other=p.operand(p.usually(shape[-1:], (1,), shape)))
    return [y]


@pattern("rms-norm", source="onnxruntime simplified_layer_norm_fusion; onnxscript rules rms_normalization")
def rms_norm(p: ProgramDraw) -> list[Result]:
    """x / sqrt(mean(x²) + eps) · weight, perhaps computed in float32."""
    shape = _shape(p)
    x = p.input(shape)
    wide = p.dtype == "float16" and p.choose(True, False)
    value = p.call("aten.to.dtype", self=x, dtype=dtype_of("float32")) if wide else x
    square = (
        p.call("aten.pow.Tensor_Scalar", self=value, exponent=2)
        if p.choose(True, False)
        else p.call("aten.mul.Tensor", self=value, other=value)
    )
    mean = p.call("aten.mean.dim", self=square, dim=p.usually([-1], [-2]), keepdim=True)
    shifted = p.call("aten.add.Scalar", self=mean, other=p.choose(1e-6, 1e-5, 0.5))
    scaled = (
        p.call("aten.mul.Tensor", self=value, other=p.call("aten.rsqrt.default", self=shifted))
        if p.choose(True, False)
        else p.call("aten.div.Tensor", self=value, other=p.call("aten.sqrt.default", self=shifted))
    )
    if wide:
        scaled = p.call("aten.to.dtype", self=scaled, dtype=dtype_of(p.dtype))
    weight = p.operand(p.usually(shape[-1:], (1,), (shape[-2], 1)))
    return [p.call("aten.mul.Tensor", self=weight, other=scaled)]


@pattern("skip-layer-norm", source="onnxruntime skip_layer_norm_fusion.cc, bias_skip_layer_norm_fusion.cc")
def skip_layer_norm(p: ProgramDraw) -> list[Result]:
    """A layer norm of a sum, the sum used again or not."""
    shape = (p.integer(1, 2), p.integer(1, 3), 4)
    left: TensorSpec | Result = p.input(shape)
    if p.sometimes():
        product = p.call("aten.matmul.default", self=left, other=p.operand((4, 4)))
        left = p.call("aten.add.Tensor", self=product, other=p.operand((4,)))
    right = p.input(p.usually(shape, (1, *shape[1:]), shape[1:]))
    both = p.call("aten.add.Tensor", self=left, other=right, alpha=p.usually(OMIT, 2))
    y = p.call(
        "aten.layer_norm.default",
        input=both,
        normalized_shape=p.usually([4], [shape[1], 4]),
        weight=OMIT,
        eps=p.choose(1e-5, 1e-3),
    )
    return [y, both] if p.sometimes() else [y]


@pattern("attention", source="onnxruntime attention_fusion; onnxscript rules sdpa")
def attention(p: ProgramDraw) -> list[Result]:
    """softmax(q kᵀ · scale + mask) v, written out."""
    heads, rows, keys, size = p.choose(1, 2), p.integer(1, 3), p.integer(1, 4), p.choose(2, 4)
    q, k, v = (p.input((1, heads, n, size), domain=("range", -2.0, 2.0)) for n in (rows, keys, keys))
    turned = p.call("aten.transpose.int", self=k, dim0=-2, dim1=-1)
    scores = p.call("aten.matmul.default", self=q, other=turned)
    scale = p.choose("mul", "div", "none")
    if scale != "none":
        scores = p.call(f"aten.{scale}.Scalar", self=scores, other=p.choose(math.sqrt(size), 1 / math.sqrt(size), 2.0))
    if p.choose(True, False):
        mask = p.input(p.choose((rows, keys), (1, 1, 1, keys), (1, heads, rows, keys)), domain=("range", -3.0, 0.0))
        scores = p.call("aten.add.Tensor", self=scores, other=mask)
    weights = p.call("aten.softmax.int", self=scores, dim=p.usually(-1, -2))
    return [p.call("aten.matmul.default", self=weights, other=v)]


@pattern("div-mul", source="onnxruntime div_mul_fusion.cc")
def div_mul(p: ProgramDraw) -> list[Result]:
    """1 / x · y, or another number than one."""
    shape = (2, 3)
    one = p.weight(p.usually((), (1,), (2, 3)), domain=p.usually(("range", 1.0, 1.0), ("finite",)))
    inverse = p.call("aten.div.Tensor", self=one, other=p.input(shape))
    if p.sometimes():
        inverse = p.call("aten.reciprocal.default", self=p.input(shape))
    other: TensorSpec | Result = p.input(p.usually(shape, (1, 3), (2, 1, 3)))
    if p.sometimes():
        other = p.call("aten.to.dtype", self=other, dtype=dtype_of(p.dtype))
    left, right = p.choose((inverse, other), (other, inverse))
    return [p.call("aten.mul.Tensor", self=left, other=right)]
