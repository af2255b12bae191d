"""The definition of Attention by its text, step by step; onnx's function body cannot be built for all of its inputs.

Shapes: `b` batches, `h` heads of queries, `q` queries, `k` keys with those of the past.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.node_call import NodeCall


def attention(call: NodeCall) -> Sequence[Array] | None:
    """Return the result, the present keys and values, and the scores at the stage that the node asks for."""
    query, keys, values, mask, past_keys, past_values, lengths = (call.given(i) for i in range(7))
    assert query is not None
    assert keys is not None
    assert values is not None
    is_flat = query.ndim == 3
    if is_flat:
        heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        query, keys, values = split_heads(query, heads), split_heads(keys, shared), split_heads(values, shared)
    past = 0
    if past_keys is not None and past_values is not None:
        past = past_keys.shape[2]
        keys, values = np.concatenate([past_keys, keys], 2), np.concatenate([past_values, values], 2)
    groups = query.shape[1] // max(keys.shape[1], 1)
    wide = query.dtype if query.dtype.kind == "f" and query.dtype.itemsize >= 8 else np.dtype(np.float64)
    each_key, each_value = (np.repeat(part.astype(wide), groups, 1) for part in (keys, values))
    scale = call.attribute("scale", 1.0 / np.sqrt(query.shape[-1]))
    scores = (query.astype(wide) * scale) @ each_key.swapaxes(-1, -2)
    cap = call.attribute("softcap", 0.0)
    capped = np.tanh(scores / cap) * cap if cap else scores
    biased = capped + _bias(call, scores.shape, past, mask, lengths)
    weights = softmax(biased)
    result = weights @ each_value
    if is_flat:
        result = result.swapaxes(1, 2).reshape(result.shape[0], result.shape[2], -1)
    stages = (scores, capped, biased, weights)
    asked = stages[call.attribute("qk_matmul_output_mode", 0)]
    results = [result.astype(query.dtype), keys, values, asked.astype(query.dtype)]
    return [array for array, name in zip(results, call.node.output, strict=False) if name]


def split_heads(array: Array, heads: int) -> Array:
    """Return [b, heads, length, size] for [b, length, heads · size]."""
    return array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)


def _bias(call: NodeCall, shape: Sequence[int], past: int, mask: Array | None, lengths: Array | None) -> Array:
    """Return what is added to scores of a shape [b, h, q, k]: −inf for keys that a query does not attend."""
    batches, _, queries, keys = shape
    place, key = np.arange(queries)[:, None], np.arange(keys)[None]
    allowed = np.ones((batches, 1, queries, keys), bool)
    offset = np.full((batches, 1, 1, 1), past)
    if lengths is not None:
        allowed &= key < lengths.reshape(-1, 1, 1, 1)
        offset = lengths.reshape(-1, 1, 1, 1) - queries if not past else offset
    at = place + offset
    left, right = (call.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if call.attribute("is_causal", 0):
        allowed &= key <= at
    if left >= 0:
        allowed &= key >= at - left
    if right >= 0:
        allowed &= key <= at + right
    bias = np.where(allowed, 0.0, -np.inf)
    if mask is None:
        return bias
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    if mask.dtype == np.bool_:
        return np.where(np.pad(mask, missing), bias, -np.inf)
    return np.asarray(bias + np.pad(mask.astype(np.float64), missing, constant_values=-np.inf))


def softmax(scores: Array) -> Array:
    """Return the weights along the last dimension; a row without any key is zero."""
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isneginf(most), 0.0, most))
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(np.isneginf(most), 1.0, total))
