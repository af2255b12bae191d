"""Normalisations, dropout and attention."""

from __future__ import annotations

from typing import Any

from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("normalization")
_EPSILONS = (OMIT, 1e-5, 1e-2, 0.0, 1.0)


def _epsilon(d: Draw) -> Any:
    return d.choose(*_EPSILONS)


@ops.case("LayerNormalization")
def layer_normalization(d: Draw) -> Arguments:
    shape, axis, scale = _normalised(d)
    return {
        "X": d.tensor(shape),
        "Scale": d.tensor(scale),
        "B": d.maybe(lambda: d.tensor(d.choose(scale, scale, d.broadcastable(scale)))),
        "axis": axis,
        "epsilon": _epsilon(d),
        "stash_type": d.choose(OMIT, 1),
    }


@ops.case("RMSNormalization")
def rms_normalization(d: Draw) -> Arguments:
    shape, axis, scale = _normalised(d)
    return {
        "X": d.tensor(shape),
        "scale": d.tensor(scale),
        "axis": axis,
        "epsilon": _epsilon(d),
        "stash_type": d.choose(OMIT, 1),
    }


def _normalised(d: Draw) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    """Return a shape, the axis from which on it is normalised, and the shape of a scale."""
    shape = d.shape(min_rank=1, max_rank=4, min_size=1)
    axis = d.dim(len(shape))
    rest = shape[axis % len(shape) :]
    # The scale broadcasts to the normalised sizes.
    scale = d.choose(rest, rest, rest, d.broadcastable(rest))
    is_last = axis % len(shape) == len(shape) - 1
    return shape, OMIT if is_last and d.boolean() else axis, scale


@ops.case("GroupNormalization")
def group_normalization(d: Draw) -> Arguments:
    groups = d.choose(2, 1, 3)
    channels = groups * d.choose(1, 2, 3)
    shape = (d.size(1, 3), channels, *(d.size(1, 5) for _ in range(d.choose(2, 1, 3, 0))))
    return {
        "X": d.tensor(shape),
        "scale": d.tensor((channels,)),
        "bias": d.tensor((channels,)),
        "num_groups": groups,
        "epsilon": _epsilon(d),
        "stash_type": d.choose(OMIT, 1),
    }


@ops.case("InstanceNormalization")
def instance_normalization(d: Draw) -> Arguments:
    channels = d.size(1, 4)
    shape = (d.size(1, 3), channels, *(d.size(1, 5) for _ in range(d.choose(2, 1, 3))))
    return {
        "input": d.tensor(shape),
        "scale": d.tensor((channels,)),
        "B": d.tensor((channels,)),
        "epsilon": _epsilon(d),
    }


@ops.case("BatchNormalization")
def batch_normalization(d: Draw) -> Arguments:
    assert d.schema is not None
    channels = d.size(1, 4)
    shape = (d.size(1, 3), channels, *(d.size(1, 5) for _ in range(d.choose(2, 1, 3, 0))))
    trains = d.schema.attribute("training_mode") is not None and d.choose(False, False, True)
    return {
        "X": d.tensor(shape),
        "scale": d.tensor((channels,)),
        "B": d.tensor((channels,)),
        "input_mean" if d.schema.version >= 14 else "mean": d.tensor((channels,)),
        "input_var" if d.schema.version >= 14 else "var": d.tensor((channels,), domain=between(0.0, 4.0)),
        "epsilon": _epsilon(d),
        "momentum": d.choose(OMIT, 0.9, 0.5, 0.0, 1.0),
        "training_mode": 1 if trains else d.choose(OMIT, 0),
        "is_test": 1 if d.schema.attribute("is_test") is not None else OMIT,
        "outputs": 3 if trains else 1,
    }


@ops.case("LRN")
def local_response(d: Draw) -> Arguments:
    return {
        "X": d.tensor((d.size(1, 2), d.size(1, 7), *(d.size(1, 4) for _ in range(d.choose(2, 1))))),
        "size": d.choose(3, 1, 2, 5),
        "alpha": d.choose(OMIT, 1e-4, 0.5),
        "beta": d.choose(OMIT, 0.75, 0.5),
        "bias": d.choose(OMIT, 1.0, 2.0),
    }


@ops.case("Dropout")
def dropout(d: Draw) -> Arguments:
    assert d.schema is not None
    is_test = d.schema.attribute("is_test") is not None
    return {
        "data": d.any_tensor(),
        "ratio": d.maybe(lambda: d.choose(0.5, 0.0, 0.25)),
        "training_mode": d.choose(OMIT, False),
        "is_test": 1 if is_test else OMIT,
        "outputs": d.choose(1, 1, 2),
    }


@ops.case("Attention")
def attention(d: Draw) -> Arguments:
    batch, groups, kv_heads = d.size(1, 3), d.choose(1, 1, 2), d.choose(1, 2, 3)
    queries, keys, past = d.choose(4, 1, 3, 7, 2), d.choose(4, 1, 3, 8), d.choose(0, 0, 2, 1)
    width, value_width = d.choose(4, 1, 8, 2), d.choose(None, None, 3)
    value_width = value_width or width
    heads = groups * kv_heads
    is_flat = d.choose(False, False, True)

    def given(count: int, length: int, size: int) -> tuple[int, ...]:
        return (batch, length, count * size) if is_flat else (batch, count, length, size)

    value_dtype = d.dtype
    total = keys + past
    assert d.schema is not None
    arguments: dict[str, Any] = {
        "Q": d.tensor(given(heads, queries, width)),
        "K": d.tensor(given(kv_heads, keys, width)),
        "V": d.tensor(given(kv_heads, keys, value_width), value_dtype),
        "attn_mask": d.choose(OMIT, OMIT, "mask"),
        "is_causal": d.flag(),
        "scale": d.choose(OMIT, OMIT, 0.5, 1.0, 0.0),
        "softcap": d.choose(OMIT, OMIT, 0.0, 2.0, 30.0),
        "qk_matmul_output_mode": d.choose(OMIT, 0, 1, 2, 3),
        "softmax_precision": d.choose(OMIT, OMIT, 1),
        "outputs": d.choose((0,), (0, 3), (0, 1, 2), (0, 1, 2, 3)),
    }
    if arguments["attn_mask"] == "mask":
        arguments["attn_mask"] = _mask(d, (batch, heads, queries, total))
    if past:
        arguments["past_key"] = d.tensor((batch, kv_heads, past, width))
        arguments["past_value"] = d.tensor((batch, kv_heads, past, value_width), value_dtype)
        if d.boolean():
            arguments["outputs"] = d.choose((0, 1, 2), (0, 1, 2, 3))
    elif d.schema.version >= 24 and d.choose(False, False, True) and 1 not in arguments["outputs"]:
        arguments["nonpad_kv_seqlen"] = d.tensor((batch,), "int64", ("range", 1, keys))
    if is_flat:
        arguments |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    if d.schema.attribute("left_window_size") is not None:
        arguments |= {
            "left_window_size": d.choose(OMIT, OMIT, -1, 0, 1, 3),
            "right_window_size": d.choose(OMIT, OMIT, -1, 0, 1, 3),
        }
    return arguments


def _mask(d: Draw, scores: tuple[int, ...]) -> Any:
    sizes = [1 if i < 2 and d.boolean() else size for i, size in enumerate(scores)]
    rank = d.choose(4, 2, 3)
    return d.tensor(sizes[4 - rank :], d.choose(d.dtype, "bool"))


@ops.case("RotaryEmbedding")
def rotary_embedding(d: Draw) -> Arguments:
    batch, heads, length, width = d.size(1, 3), d.choose(2, 1, 3), d.choose(4, 1, 3), d.choose(4, 2, 8)
    is_flat = d.boolean()
    rotated = d.choose(OMIT, 0, 2, width)
    half = (width if rotated in (OMIT, 0) else rotated) // 2
    has_positions = d.boolean()
    room = length + d.choose(0, 2)
    cache = (room, half) if has_positions else (batch, length, half)
    return {
        "X": d.tensor((batch, length, heads * width) if is_flat else (batch, heads, length, width)),
        "cos_cache": d.tensor(cache, domain=between(-1.0, 1.0)),
        "sin_cache": d.tensor(cache, domain=between(-1.0, 1.0)),
        "position_ids": d.tensor((batch, length), "int64", ("index", room)) if has_positions else OMIT,
        "interleaved": d.flag(),
        "num_heads": heads if is_flat else d.choose(OMIT, heads),
        "rotary_embedding_dim": rotated,
    }


@ops.case("LinearAttention")
def linear_attention(d: Draw) -> Arguments:
    batch, length, heads, width = d.size(1, 2), d.choose(3, 1, 4), d.choose(2, 1), d.choose(4, 2)
    values, rule = d.choose(4, 3), d.choose(OMIT, "linear", "gated", "delta", "gated_delta")
    gated, delta = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    return {
        "query": d.tensor((batch, length, heads * width), domain=between(-1.0, 1.0)),
        "key": d.tensor((batch, length, heads * width), domain=between(-1.0, 1.0)),
        "value": d.tensor((batch, length, heads * values)),
        "past_state": d.maybe(lambda: d.tensor((batch, heads, width, values))),
        "decay": d.tensor((batch, length, heads), domain=between(-2.0, 0.0)) if gated or rule is OMIT else OMIT,
        "beta": d.tensor((batch, length, heads), domain=between(0.0, 1.0)) if delta or rule is OMIT else OMIT,
        "q_num_heads": heads,
        "kv_num_heads": heads,
        "scale": d.choose(OMIT, 0.5, 1.0),
        "update_rule": rule,
        "outputs": 2,
    }


@ops.case("CausalConvWithState")
def causal_convolution(d: Draw) -> Arguments:
    batch, channels, length, kernel = d.size(1, 3), d.size(1, 4), d.choose(4, 1, 7), d.choose(3, 1, 2, 4)
    return {
        "input": d.tensor((batch, channels, length)),
        "weight": d.tensor((channels, 1, kernel)),
        "bias": d.maybe(lambda: d.tensor((channels,))),
        "past_state": d.maybe(lambda: d.tensor((batch, channels, kernel - 1))),
        "activation": d.choose(OMIT, "none", "silu", "swish"),
        "outputs": 2,
    }
