"""ONNX operators that PyTorch has under their own names, with implementations of its own: `torch.onnx.ops`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cases.attention import overflowing
from harness.compare.judge import Allowance, Judge, Mask
from harness.core.dtypes import FLOATS, Array
from harness.generate.draw import OMIT, Draw, index_into
from harness.generate.operator_case import Arguments, Family

ops = Family("onnx_operators")
#: The opset in which ONNX got them.
_OPSET = 23


def _overflowing_queries(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Mask the results of queries with a score that leaves the range of the dtype on its way."""
    query, key, past = arguments["Q"], arguments["K"], arguments.get("past_key")
    if query.ndim == 3:
        counts = arguments["q_num_heads"], arguments["kv_num_heads"]
        query, key = (
            a.reshape(*a.shape[:2], count, -1).swapaxes(1, 2) for a, count in zip((query, key), counts, strict=True)
        )
    if past is not None:
        key = np.concatenate([past, key], axis=2)
    leaves = overflowing(query, key, arguments.get("scale"))
    result, _, _, scores = expected
    rows = np.any(leaves, axis=1) if result.ndim == 3 else leaves
    found = [np.broadcast_to(np.expand_dims(m, -1), o.shape) for m, o in ((rows, result), (leaves, scores))]
    return [found[0], None, None, found[1]]


_ATTENTION = Judge(
    unsettled=Allowance(
        "A score leaves the range on its way: whether it does depends on when the kernel multiplies by the scale.",
        _overflowing_queries,
    )
)


def _mask(d: Draw, scores: tuple[int, ...]) -> Any:
    sizes = [1 if i < len(scores) - 2 and d.boolean() else size for i, size in enumerate(scores)]
    return d.tensor(sizes[d.choose(0, 0, d.integer(0, len(sizes))) :], d.choose(d.dtype, "bool"))


@ops.case("onnx.Attention.opset23", dtypes=FLOATS, judge=_ATTENTION, opset=_OPSET)
def attention(d: Draw) -> Arguments:
    batch, groups, kv_heads = d.size(0, 3), d.choose(1, 1, 2), d.choose(1, 2, 3)
    queries, keys, past = d.choose(4, 1, 3, 7, 0), d.choose(4, 1, 3, 8, 0), d.choose(0, 0, 2)
    width, value_width = d.choose(4, 1, 8, 2), d.choose(None, None, 3)
    value_width = value_width or width
    heads = groups * kv_heads
    flat = 0 not in (batch, queries, keys) and d.choose(False, False, True)
    shapes: list[tuple[int, ...]]
    if flat:
        lead = (batch, keys)
        shapes = [(batch, queries, heads * width), (*lead, kv_heads * width), (*lead, kv_heads * value_width)]
    else:
        shapes = [(batch, heads, queries, width), (batch, kv_heads, keys, width), (batch, kv_heads, keys, value_width)]
    scores = (batch, heads, queries, keys + past)
    causal = d.choose(OMIT, False, True)
    return {
        **{name: d.tensor(shape) for name, shape in zip("QKV", shapes, strict=True)},
        "attn_mask": OMIT if causal is True else d.maybe(lambda: _mask(d, scores), none=True),
        "past_key": d.tensor((batch, kv_heads, past, width)) if past else OMIT,
        "past_value": d.tensor((batch, kv_heads, past, value_width)) if past else OMIT,
        "is_causal": causal,
        "kv_num_heads": kv_heads if flat else OMIT,
        "q_num_heads": heads if flat else OMIT,
        "qk_matmul_output_mode": d.choose(OMIT, OMIT, 0, 1, 2, 3),
        "scale": d.maybe(lambda: d.choose(1.0, 0.5, 0.125, 2.0), none=True),
        "softcap": d.choose(OMIT, OMIT, 0.0, 2.0, 30.0),
        # float32, float64 and float16 as ONNX numbers them.
        "softmax_precision": d.choose(OMIT, OMIT, None, 1, 10, 11),
    }


@ops.case("onnx.RotaryEmbedding.opset23", dtypes=FLOATS, opset=_OPSET)
def rotary_embedding(d: Draw) -> Arguments:
    batch, heads, length = d.size(0, 3), d.size(1, 3), d.choose(4, 1, 3, 7, 0)
    width = 2 * d.choose(2, 1, 4, 3)
    rotated = d.choose(0, 0, max(2, width // 2 // 2 * 2))
    flat, by_position = d.choose(False, False, True), d.boolean()
    half = (rotated or width) // 2
    positions = d.choose(9, length + 1)
    cache = (positions, half) if by_position else (batch, length, half)
    return {
        "x": d.tensor((batch, length, heads * width) if flat else (batch, heads, length, width)),
        "cos_cache": d.tensor(cache),
        "sin_cache": d.tensor(cache),
        "position_ids": d.tensor((batch, length), "int64", index_into(positions)) if by_position else OMIT,
        "interleaved": d.choose(OMIT, False, True),
        "num_heads": heads if flat else OMIT,
        "rotary_embedding_dim": rotated or d.choose(OMIT, 0),
    }
