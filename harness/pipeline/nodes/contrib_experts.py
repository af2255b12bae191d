"""The definition of ONNX Runtime's quantised mixture of experts, after the documentation in its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.attention import softmax
from harness.pipeline.nodes.contrib_quantized import unpack_bits
from harness.pipeline.nodes.formulas import gelu
from harness.pipeline.nodes.node_call import NodeCall, widen

_ACTIVATIONS: Mapping[bytes, Callable[[Array], Array]] = {
    b"relu": lambda x: np.maximum(x, 0),
    b"gelu": lambda x: gelu(x, by_tanh=False),
    b"silu": lambda x: x / (1 + np.exp(-x)),
    b"identity": lambda x: x,
}
_BYTE = 8
#: Inputs from the third projection on: other forms of the operator have them.
_FURTHER = (8, 9, 10, 13, *range(14, 21))


def quantised_experts(call: NodeCall) -> Sequence[Array] | None:
    """Return the weighted sum of the best experts of each token.

    None for activations with a gate, weights that are no integers, a third projection, and tokens whose last chosen
    expert ties with another or has no finite probability; for routing weights that are not normalised, since the text
    does not say how they are made of probabilities; and for blocks of 8 bits, whose inputs ONNX Runtime quantises, too.
    """
    x, router = call.given(0), call.given(1)
    assert x is not None
    assert router is not None
    activation = _ACTIVATIONS.get(call.attribute("activation_type", b"relu"))
    if activation is None or any(call.given(i) is not None for i in _FURTHER):
        return None
    if call.attribute("quant_type", b"int") != b"int" or call.attribute("use_sparse_mixer", 0):
        return None
    if not call.attribute("normalize_routing_weights", 0) and call.attribute("k", 1) < router.shape[1]:
        return None
    if call.attribute("block_size", 0) and call.attribute("expert_weight_bits", 4) == _BYTE:
        return None
    first, second = _experts(call, 2, 11), _experts(call, 5, 12)
    tokens = widen(x).reshape(-1, x.shape[-1])
    scores = widen(router)
    chosen = np.argsort(-scores, axis=1, kind="stable")
    count = call.attribute("k", 1)
    ordered = np.take_along_axis(scores, chosen, 1)
    if not np.isfinite(scores).all():
        return None
    if count < scores.shape[1] and (ordered[:, count - 1] == ordered[:, count]).any():
        return None
    result = np.zeros((len(tokens), second[0].shape[1]))
    for row, token in enumerate(tokens):
        experts = chosen[row, :count]
        for expert, share in zip(experts, softmax(scores[row, experts]), strict=True):
            hidden = activation(first[0][expert] @ token + first[1][expert])
            result[row] += share * (second[0][expert] @ hidden + second[1][expert])
    return [result.reshape(*x.shape[:-1], -1).astype(x.dtype)]


def _experts(call: NodeCall, place: int, zeros_place: int) -> tuple[Array, Array]:
    """Return the weights [experts, rows, columns] of a projection, and its bias [experts, rows]."""
    packed, scales, bias, zeros = (call.given(i) for i in (place, place + 1, place + 2, zeros_place))
    assert packed is not None
    assert scales is not None
    bits, block = call.attribute("expert_weight_bits", 4), call.attribute("block_size", 0)
    codes = unpack_bits(packed, bits).astype(np.float64)
    experts, rows, columns = codes.shape
    width = block or columns
    by_block = widen(scales).reshape(experts, rows, columns // width)
    middle = np.full(by_block.shape, 2.0 ** (bits - 1))
    if zeros is not None:
        unpacked = unpack_bits(zeros, bits).astype(np.float64)
        counted = unpacked[:, :rows, None] if zeros.ndim == 2 else unpacked[..., : columns // width]
        middle = np.broadcast_to(counted, by_block.shape)
    weights = (codes - np.repeat(middle, width, 2)) * np.repeat(by_block, width, 2)
    return weights, np.zeros((experts, rows)) if bias is None else widen(bias)
