"""Definitions of ONNX Runtime's own operators (``com.microsoft``), after its documentation of contributed operators.

ONNX Runtime's optimiser and quantisers write them into files. They have no definition in the onnx package, so that a
node of another operator of that domain is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.contrib_attention import (
    attention,
    embed_layer_normalization,
    group_query_attention,
    multi_head_attention,
    rotary_embedding,
)
from harness.pipeline.nodes.contrib_experts import quantised_experts
from harness.pipeline.nodes.contrib_quantized import REALS, dequantize_linear, round_steps, unpack_bits
from harness.pipeline.nodes.formulas import FORMULAS, gelu
from harness.pipeline.nodes.node_call import Formula, NodeCall

DOMAIN = "com.microsoft"


def _wide(x: Array) -> Array:
    """Return numbers in float64, or as they are if they have more bits."""
    return x if x.dtype == np.longdouble else x.astype(np.float64)


def _inputs(call: NodeCall, count: int) -> list[Array]:
    """Return the first inputs, which must be present, in float64."""
    arrays = [call.given(i) for i in range(count)]
    assert all(array is not None for array in arrays)
    return [_wide(array) for array in arrays if array is not None]


def _float_dtype(call: NodeCall) -> np.dtype[Any]:
    x = call.given(0)
    assert x is not None
    return x.dtype


def _bias_gelu(call: NodeCall) -> Sequence[Array]:
    """Compute ``Gelu(A + B)`` with the distribution function."""
    a, b = _inputs(call, 2)
    return [gelu(a + b, by_tanh=False).astype(_float_dtype(call))]


def _fast_gelu(call: NodeCall) -> Sequence[Array]:
    """Compute GELU by its approximation with tanh, of the input plus an optional bias."""
    (x,) = _inputs(call, 1)
    bias = call.given(1)
    x = x if bias is None else x + _wide(bias)
    return [gelu(x, by_tanh=True).astype(_float_dtype(call))]


def _quick_gelu(call: NodeCall) -> Sequence[Array]:
    """Compute ``x * sigmoid(alpha * x)``."""
    (x,) = _inputs(call, 1)
    scaled = call.attribute("alpha", 1.702) * x
    small = np.exp(-np.abs(scaled))
    return [np.asarray(x * np.where(scaled >= 0, 1, small) / (1 + small)).astype(_float_dtype(call))]


_ACTIVATIONS: Mapping[str, Callable[[Array, Sequence[float]], Array]] = {
    "": lambda x, _: x,
    "Relu": lambda x, _: np.maximum(x, 0),
    "Tanh": lambda x, _: np.tanh(x),
    "Sigmoid": lambda x, _: 1 / (1 + np.exp(-x)),
    "LeakyRelu": lambda x, p: np.where(x < 0, (p[0] if p else 0.01) * x, x),
    "Clip": lambda x, p: np.clip(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: np.clip(p[0] * x + p[1], 0, 1),
}


def _activated(call: NodeCall, x: Array, parameters: Sequence[float]) -> Array:
    return np.asarray(_ACTIVATIONS[call.attribute("activation", b"").decode()](x, parameters))


def _fused_conv(call: NodeCall) -> Sequence[Array] | None:
    """Compute Conv, add a fourth input, and apply an activation."""
    wide = NodeCall(call.node, [None if a is None else _wide(a) for a in call.inputs[:3]], call.opset, call.dtype)
    found = FORMULAS["Conv"](wide)
    if found is None:
        return None
    more = call.given(3)
    x = found[0] if more is None else found[0] + _wide(more)
    return [_activated(call, x, call.attribute("activation_params", [])).astype(_float_dtype(call))]


def _fused_gemm(call: NodeCall) -> Sequence[Array]:
    """Compute Gemm and apply an activation."""
    a, b = _inputs(call, 2)
    a, b = (a.T if call.attribute("transA", 0) else a), (b.T if call.attribute("transB", 0) else b)
    found, c = call.attribute("alpha", 1.0) * (a @ b), call.given(2)
    if c is not None:
        found = found + call.attribute("beta", 1.0) * _wide(c)
    parameters = [call.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return [_activated(call, found, [p for p in parameters if p is not None]).astype(_float_dtype(call))]


def _fused_matmul(call: NodeCall) -> Sequence[Array] | None:
    """Compute ``alpha * A' * B'``, where the last two dimensions may be transposed; None if batches are, too."""
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        return None
    a, b = _inputs(call, 2)
    a = np.swapaxes(a, -1, -2) if call.attribute("transA", 0) and a.ndim > 1 else a
    b = np.swapaxes(b, -1, -2) if call.attribute("transB", 0) and b.ndim > 1 else b
    return [np.asarray(call.attribute("alpha", 1.0) * np.matmul(a, b)).astype(_float_dtype(call))]


def _sum_of_inputs(call: NodeCall, *places: int) -> Array:
    """Return the sum of some inputs, one after another in their dtype, whose range it may leave."""
    given = [array for place in places if (array := call.given(place)) is not None]
    return _wide(np.asarray(sum(given[1:], start=given[0])))


def _skip_layer_normalization(call: NodeCall) -> Sequence[Array]:
    """Normalise the sum of input, skip and bias over the last dimension."""
    gamma, beta = _inputs(call, 3)[2], call.given(3)
    total = _sum_of_inputs(call, 0, 1, 4)
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(np.square(total - mean).mean(-1, keepdims=True) + call.attribute("epsilon", 1e-12))
    found = (total - mean) * inverse * gamma
    return _named_outputs(call, (found if beta is None else found + _wide(beta), mean, inverse, total))


def _skip_simplified_layer_normalization(call: NodeCall) -> Sequence[Array]:
    """Divide the sum of input, skip and bias by its root mean square over the last dimension."""
    gamma, total = _inputs(call, 3)[2], _sum_of_inputs(call, 0, 1, 3)
    inverse = 1 / np.sqrt(np.square(total).mean(-1, keepdims=True) + call.attribute("epsilon", 1e-12))
    return _named_outputs(call, (total * inverse * gamma, np.zeros_like(inverse), inverse, total))


def _named_outputs(call: NodeCall, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs that the node names; its mean and deviation are float32."""
    dtype = _float_dtype(call)
    wide = dtype.itemsize >= 8
    kinds = (dtype, *((dtype if wide else np.dtype(np.float32),) * 2), dtype)
    return [np.asarray(a).astype(kind) for name, a, kind in zip(call.node.output, arrays, kinds, strict=False) if name]


def _simplified_layer_normalization(call: NodeCall) -> Sequence[Array]:
    """Divide by the root mean square over the dimensions from `axis` on."""
    x, scale = _inputs(call, 2)
    over = tuple(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    inverse = 1 / np.sqrt(np.square(x).mean(over, keepdims=True) + call.attribute("epsilon", 1e-5))
    found = [np.asarray(x * inverse * scale).astype(_float_dtype(call)), inverse.astype(_float_dtype(call))]
    return found[: len(call.node.output)]


#: The level at which the input may be quantised to 8 bits, so that the text defines no result.
_INT8_LEVEL = 4


def _matmul_nbits(call: NodeCall) -> Sequence[Array] | None:
    """Multiply by weights that are stored in blocks along K: ``(quantized - zero_point) * scale``.

    None if the runtime may quantise the input, for prepacked or omitted weights, and for an index of groups.
    """
    if call.attribute("accuracy_level", 0) == _INT8_LEVEL or call.attribute("weight_prepacked", 0):
        return None
    x, packed, scales, zeros = (call.given(i) for i in range(4))
    if call.given(4) is not None or x is None or packed is None or scales is None or not packed.size:
        return None
    rows, columns, block, bits = (call.attribute(n) for n in ("N", "K", "block_size", "bits"))
    blocks = -(-columns // block)
    codes = unpack_bits(packed.reshape(rows, blocks, -1), bits)[..., :block].astype(np.float64)
    if zeros is None:
        middle: Array = np.full((rows, blocks), 2.0 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        middle = unpack_bits(zeros.reshape(rows, -1), bits)[:, :blocks].astype(np.float64)
    else:
        middle = _wide(zeros).reshape(rows, blocks)
    weights = (codes - middle[..., None]) * _wide(scales).reshape(rows, blocks, 1)
    found = np.matmul(_wide(x), weights.reshape(rows, -1)[:, :columns].T)
    bias = call.given(5)
    return [np.asarray(found if bias is None else found + _wide(bias)).astype(x.dtype)]


def _matmul_integer_to_float(call: NodeCall) -> Sequence[Array]:
    """Multiply integers without their zero points, and scale the product."""
    a, b, a_scale, b_scale = _inputs(call, 4)
    a_zero, b_zero, bias = (call.given(i) for i in range(4, 7))
    a = a if a_zero is None else a - _wide(a_zero)
    b = b if b_zero is None else b - _wide(b_zero)
    found = np.matmul(a, b) * (a_scale * b_scale)
    scale = call.given(2)
    assert scale is not None
    return [np.asarray(found if bias is None else found + _wide(bias)).astype(scale.dtype)]


def _trilu(call: NodeCall) -> Sequence[Array]:
    """Keep the upper or the lower triangle of the last two dimensions, from a diagonal on."""
    x, diagonal = call.given(0), call.given(1)
    assert x is not None
    keep = np.triu if call.attribute("upper", 1) else np.tril
    return [keep(x, 0 if diagonal is None else int(diagonal))]


#: Operator of `DOMAIN` → its definition, which returns None for what it leaves to the runtime.
CONTRIB: Mapping[str, Formula] = {
    **dict.fromkeys(REALS, round_steps),
    "Attention": attention,
    "BiasGelu": _bias_gelu,
    "DequantizeLinear": dequantize_linear,
    "EmbedLayerNormalization": embed_layer_normalization,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": FORMULAS["Gelu"],
    "GroupQueryAttention": group_query_attention,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": multi_head_attention,
    "QMoE": quantised_experts,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": rotary_embedding,
    "TransposeMatMul": _fused_matmul,
    "Trilu": _trilu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
}
#: Operators of ONNX Runtime that it puts into the default domain.
DEFAULT_DOMAIN_CONTRIB: Mapping[str, Formula] = {"SimplifiedLayerNormalization": _simplified_layer_normalization}
