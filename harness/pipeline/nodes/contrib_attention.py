"""Definitions of ONNX Runtime's attention operators, after the documentation in their schemas.

Shapes: `b` batches, `s` queries, `t` keys with those of the past, `n` heads of queries, `k` heads of keys, `h` numbers
of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.attention import softmax, split_heads
from harness.pipeline.nodes.node_call import NodeCall, widen


def attention(call: NodeCall) -> Sequence[Array] | None:
    """Return Attention's result, and the keys and values with the past; the input is projected first.

    None for rotary embeddings, and if a buffer is shared.
    """
    if call.attribute("do_rotary", 0) or call.attribute("past_present_share_buffer", 0):
        return None
    x, weights, bias, mask, past, added = (call.given(i) for i in range(6))
    assert x is not None
    assert weights is not None
    sizes = call.attribute("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    projected = widen(x) @ widen(weights)
    if bias is not None:
        projected = projected + widen(bias)
    heads = call.attribute("num_heads")
    q, k, v = (split_heads(part, heads) for part in np.split(projected, np.cumsum(sizes)[:2], axis=-1))
    if past is not None:
        k, v = np.concatenate([widen(past[0]), k], 2), np.concatenate([widen(past[1]), v], 2)
    found = _weighted(call, q, k, v, mask, added)
    if found is None:
        return None
    results = [_joined(found[0])]
    if len(call.node.output) > 1 and call.node.output[1]:
        results.append(np.stack([k, v]))
    return [array.astype(x.dtype) for array in results]


def multi_head_attention(call: NodeCall) -> Sequence[Array] | None:
    """Return MultiHeadAttention's result, the present keys and values, and the weights; None for packed inputs."""
    query, key, value, bias, mask, added, past_key, past_value = (call.given(i) for i in range(8))
    if call.given(8) is not None or call.given(9) is not None:
        return None
    if query is None or query.ndim != 3 or key is None or value is None:
        return None
    heads = call.attribute("num_heads")
    parts = [widen(part) for part in (query, key, value)]
    if bias is not None:
        sizes = np.cumsum([query.shape[-1], query.shape[-1]])
        parts = [
            part if part.ndim == 4 else part + own
            for part, own in zip(parts, np.split(widen(bias), sizes), strict=True)
        ]
    q, k, v = (part if part.ndim == 4 else split_heads(part, heads) for part in parts)
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([widen(past_key), k], 2), np.concatenate([widen(past_value), v], 2)
    found = _weighted(call, q, k, v, mask, added)
    if found is None:
        return None
    results = zip((_joined(found[0]), k, v, found[1]), call.node.output, strict=False)
    return [array.astype(query.dtype) for array, name in results if name]


def _weighted(
    call: NodeCall, q: Array, k: Array, v: Array, mask: Array | None, added: Array | None
) -> tuple[Array, Array] | None:
    """Return weighted values [b, n, s, h] and weights [b, n, s, t]; None for a mask in another form.

    Masked keys are not left out: a filter value is filled into the mask, which is added to the scores.
    """
    scores = (q * call.attribute("scale", 1.0 / np.sqrt(q.shape[-1]))) @ k.swapaxes(-1, -2)
    if added is not None:
        scores = scores + widen(added)
    batches, _, queries, keys = scores.shape
    value = call.attribute("mask_filter_value", -10000.0)
    if call.attribute("unidirectional", 0):
        scores = scores + np.where(np.arange(keys) <= np.arange(queries)[:, None] + keys - queries, 0.0, value)
    if mask is not None:
        marked = _marked_keys(mask, batches, keys)
        if marked is None:
            return None
        scores = scores + np.where(marked, 0.0, value)
    weights = softmax(scores)
    return weights @ v, weights


def _marked_keys(mask: Array, batches: int, keys: int) -> Array | None:
    """Return which keys [b, 1, s or 1, t] a mask or an index of one leaves; None for its other forms."""
    place = np.arange(keys)
    if mask.ndim == 1 and mask.size == batches:
        return np.asarray(place < mask.reshape(-1, 1, 1, 1))
    if mask.ndim == 1 and mask.size == 2 * batches:
        ends, starts = mask.reshape(2, -1, 1, 1, 1)
        return np.asarray((place < ends) & (place >= starts))
    if mask.ndim == 2 and mask.shape == (batches, keys):
        return np.asarray(mask.reshape(batches, 1, 1, keys) > 0)
    if mask.ndim == 3 and mask.shape[2] == keys:
        return np.asarray(mask[:, None] > 0)
    return None


def _joined(x: Array) -> Array:
    """Return [b, s, n · h] for [b, n, s, h]."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def group_query_attention(call: NodeCall) -> Sequence[Array] | None:
    """Return GroupQueryAttention's result, and the present keys and values.

    None for packed or quantised inputs, norms of heads, batches that are padded, since the text leaves their rows open,
    and if a masked score is no finite number.
    """
    query, key, value, past_key, past_value, lengths = (call.given(i) for i in range(6))
    bias, sinks = call.given(10), call.given(11)
    if query is None or key is None or value is None or lengths is None or not call.attribute("causal", 1):
        return None
    if any(call.given(i) is not None for i in range(12, len(call.inputs))) or call.attribute("qk_output", 0):
        return None
    heads, shared = call.attribute("num_heads"), call.attribute("kv_num_heads")
    q, k, v = split_heads(widen(query), heads), split_heads(widen(key), shared), split_heads(widen(value), shared)
    past = 0 if past_key is None else past_key.shape[2]
    if (lengths != past + q.shape[2] - 1).any():
        return None
    if call.attribute("do_rotary", 0):
        rotated = _rotated_heads(call, q, k, past)
        if rotated is None:
            return None
        q, k = rotated
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([widen(past_key), k], 2), np.concatenate([widen(past_value), v], 2)
    groups = heads // shared
    scale = call.attribute("scale", 0.0) or 1.0 / np.sqrt(q.shape[-1])
    scores = (q * scale) @ np.repeat(k, groups, 1).swapaxes(-1, -2)
    cap = call.attribute("softcap", 0.0)
    scores = np.tanh(scores / cap) * cap if cap else scores
    if bias is not None:
        scores = scores + widen(bias)
    place, at = np.arange(k.shape[2]), past + np.arange(q.shape[2])[:, None]
    window = call.attribute("local_window_size", -1)
    # "Like Mistral": a window of n holds n keys, the query's own among them.
    allowed = (place <= at) & ((place > at - window) if window >= 0 else True)
    if not np.isfinite(scores[~np.broadcast_to(allowed, scores.shape)]).all():
        return None
    weights = _smooth_softmax(
        np.where(allowed, scores, -np.inf), sinks, is_smooth=bool(call.attribute("smooth_softmax", 0))
    )
    results = zip((_joined(weights @ np.repeat(v, groups, 1)), k, v), call.node.output, strict=False)
    return [array.astype(query.dtype) for array, name in results if name]


def _smooth_softmax(scores: Array, sinks: Array | None, *, is_smooth: bool) -> Array:
    """Return weights whose denominator has a further term: ``exp(sink)`` of the head, or ``exp(0)``."""
    if sinks is None and not is_smooth:
        return softmax(scores)
    extra = np.zeros(1) if sinks is None else widen(sinks)
    column = np.broadcast_to(extra.reshape(1, -1, 1, 1), (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, column], -1))[..., :-1]


def _rotated_heads(call: NodeCall, q: Array, k: Array, past: int) -> tuple[Array, Array] | None:
    cos, sin = call.given(7), call.given(8)
    if cos is None or sin is None or call.given(9) is not None:
        return None
    places = np.broadcast_to(past + np.arange(q.shape[2]), (q.shape[0], q.shape[2]))
    by_pairs = bool(call.attribute("rotary_interleaved", 0))
    angles = widen(cos)[places], widen(sin)[places]
    return rotate(q, *angles, by_pairs=by_pairs), rotate(k, *angles, by_pairs=by_pairs)


def rotary_embedding(call: NodeCall) -> Sequence[Array] | None:
    """Rotate pairs of numbers of each head; None for ragged batches."""
    x, places, cos, sin = (call.given(i) for i in range(4))
    assert x is not None
    assert places is not None
    assert cos is not None
    assert sin is not None
    if call.attribute("is_packed_batching", 0):
        return None
    partial = call.attribute("rotary_embedding_dim", 0)
    heads = x if x.ndim == 4 else split_heads(x, call.attribute("num_heads", 0) or x.shape[-1] // (2 * cos.shape[1]))
    if places.ndim == 1:
        places = np.broadcast_to(places[0] + np.arange(heads.shape[2]), (heads.shape[0], heads.shape[2]))
    count = partial or heads.shape[-1]
    by_pairs = bool(call.attribute("interleaved", 0))
    turned = rotate(widen(heads)[..., :count], widen(cos)[places], widen(sin)[places], by_pairs=by_pairs)
    whole = np.concatenate([turned, widen(heads)[..., count:]], -1)
    return [(whole if x.ndim == 4 else _joined(whole)).astype(x.dtype)]


def rotate(x: Array, cos: Array, sin: Array, *, by_pairs: bool) -> Array:
    """Return heads [b, n, s, h] whose pairs are turned by angles [b, s, h / 2].

    Pairs are neighbours, or the same places of both halves.
    """
    c, s = cos[:, None], sin[:, None]
    first, second = (x[..., ::2], x[..., 1::2]) if by_pairs else np.split(x, 2, axis=-1)
    turned = first * c - second * s, second * c + first * s
    if by_pairs:
        return np.asarray(np.stack(turned, -1).reshape(x.shape))
    return np.concatenate(turned, -1)


def embed_layer_normalization(call: NodeCall) -> Sequence[Array] | None:
    """Look up and add embeddings, and normalise the sum; also the number of words before the padding, and the sum."""
    ids, kinds, words, places, segments, gamma, beta, mask, positions = (call.given(i) for i in range(9))
    assert ids is not None
    assert words is not None
    assert places is not None
    at = np.arange(ids.shape[1])[None] if positions is None else positions
    total = widen(words)[ids] + widen(places)[at]
    if segments is not None and kinds is not None:
        total = total + widen(segments)[kinds]
    assert gamma is not None
    assert beta is not None
    mean = total.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(total - mean).mean(-1, keepdims=True) + call.attribute("epsilon", 1e-12))
    found = (total - mean) / deviation * widen(gamma) + widen(beta)
    if mask is None:
        lengths = np.zeros(ids.shape[0], np.int32)
    else:
        # "Position of first 0 in mask, or number of words."
        lengths = np.where((mask == 0).any(1), (mask == 0).argmax(1), mask.shape[1]).astype(np.int32)
    results = (found.astype(words.dtype), lengths, total.astype(words.dtype))
    return [array for array, name in zip(results, call.node.output, strict=False) if name]
