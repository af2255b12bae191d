"""ONNX Runtime's operators that exporters, quantisers and fusions write into files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.invocation import Literal, TensorSpec, contiguous_strides
from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("contributed", "com.microsoft")
_EPSILONS = (OMIT, 1e-5, 1e-2)
#: Any byte, which holds one or more packed weights.
_CODES = ("range", 0, 255)
#: A mask under which few queries are left without a key: what they give is not defined.
_MOSTLY_ONES = ("share", 0.85)
#: Heads, and numbers of each.
_HEADS = ((2, 4), (1, 4), (2, 2), (3, 4))


@ops.case("Gelu", "QuickGelu")
def activation(d: Draw) -> Arguments:
    assert d.schema is not None
    has_alpha = d.schema.attribute("alpha") is not None
    return {"X": d.any_tensor(), "alpha": d.choose(OMIT, 1.0, 2.5, -1.0) if has_alpha else OMIT}


@ops.case("BiasGelu")
def bias_gelu(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"A": d.tensor(shape), "B": d.tensor(shape[-1:])}


@ops.case("FastGelu")
def fast_gelu(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"X": d.tensor(shape), "bias": d.maybe(lambda: d.tensor(shape[-1:]))}


@ops.case("SkipLayerNormalization")
def skip_layer_normalization(d: Draw) -> Arguments:
    shape = (d.size(1, 3), d.size(1, 4), d.choose(4, 1, 7, 8))
    return {
        "input": d.tensor(shape),
        "skip": d.tensor(d.choose(shape, shape, shape[1:], (1, *shape[1:]))),
        "gamma": d.tensor(shape[-1:]),
        "beta": d.maybe(lambda: d.tensor(shape[-1:])),
        "bias": d.maybe(lambda: d.tensor(shape[-1:])),
        "epsilon": d.choose(*_EPSILONS),
        "outputs": d.choose(1, 1, (0, 3)),
    }


@ops.case("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(d: Draw) -> Arguments:
    shape = (d.size(1, 3), d.size(1, 4), d.choose(4, 1, 7, 8))
    return {
        "input": d.tensor(shape),
        "skip": d.tensor(d.choose(shape, shape, shape[1:], (1, *shape[1:]))),
        "gamma": d.tensor(shape[-1:]),
        "bias": d.maybe(lambda: d.tensor(shape[-1:])),
        "epsilon": d.choose(*_EPSILONS),
        "outputs": d.choose(1, 1, (0, 3)),
    }


@ops.case("EmbedLayerNormalization", about="word_embedding")
def embed_layer_normalization(d: Draw) -> Arguments:
    batch, length, width, words = d.size(1, 3), d.size(1, 5), d.choose(4, 1, 6), d.size(2, 6)
    has_segments = d.choose(True, True, False)
    counts = [d.integer(0, length) for _ in range(batch)]
    mask = d.maybe(lambda: _padded_mask(counts, length))
    return {
        "input_ids": d.tensor((batch, length), "int32", ("range", 0, words - 1)),
        "segment_ids": d.tensor((batch, length), "int32", ("range", 0, 1)) if has_segments else OMIT,
        "word_embedding": d.tensor((words, width)),
        "position_embedding": d.tensor((length + d.size(0, 2), width)),
        "segment_embedding": d.tensor((2, width)) if has_segments else OMIT,
        "gamma": d.tensor((width,)),
        "beta": d.tensor((width,)),
        "mask": mask,
        "position_ids": d.maybe(lambda: d.tensor((d.choose(batch, 1), length), "int32", ("range", 0, length - 1))),
        "epsilon": d.choose(*_EPSILONS),
        "outputs": d.choose(2, 2, 3),
    }


def _mask(d: Draw, batch: int, queries: int, keys: int) -> Any:
    """Return a mask of keys, of pairs, or the number of keys of each batch; nobody is left without a key."""
    kind = d.choose("none", "keys", "lengths", "pairs")
    if kind == "none":
        return OMIT
    if kind == "lengths":
        return d.tensor((batch,), "int32", ("range", 1, keys))
    shape = (batch, keys) if kind == "keys" else (batch, queries, keys)
    return d.tensor(shape, "int32", _MOSTLY_ONES)


def _padded_mask(counts: Sequence[int], length: int) -> TensorSpec:
    """Return a mask of so many words of each batch, with padding behind them."""
    shape = (len(counts), length)
    values = tuple(int(place < count) for count in counts for place in range(length))
    return TensorSpec(shape, "int32", contiguous_strides(shape), 0, Literal(values))


@ops.case("Attention")
def attention(d: Draw) -> Arguments:
    batch, length, width = d.size(1, 3), d.choose(3, 1, 4), d.choose(5, 1, 8)
    heads, size = d.choose(*_HEADS)
    past = d.choose(0, 0, 2)
    hidden = heads * size
    value = hidden if past else d.choose(hidden, hidden, heads * 3)
    total = length + past
    return {
        "input": d.tensor((batch, length, width)),
        "weights": d.tensor((width, 2 * hidden + value)),
        "bias": d.maybe(lambda: d.tensor((2 * hidden + value,))),
        "mask_index": _mask(d, batch, length, total),
        "past": d.tensor((2, batch, heads, past, size)) if past else OMIT,
        "attention_bias": d.maybe(lambda: d.tensor((d.choose(batch, 1), d.choose(heads, 1), length, total))),
        "num_heads": heads,
        "qkv_hidden_sizes": [hidden, hidden, value] if value != hidden else OMIT,
        "scale": d.choose(OMIT, OMIT, 0.5),
        "unidirectional": d.choose(OMIT, 0, 1),
        "outputs": 2 if past else 1,
    }


@ops.case("MultiHeadAttention")
def multi_head_attention(d: Draw) -> Arguments:
    batch, queries, keys = d.size(1, 3), d.choose(3, 1, 4), d.choose(3, 1, 5)
    heads, size = d.choose(*_HEADS)
    past = d.choose(0, 0, 2)
    hidden = heads * size
    value = hidden if past else d.choose(hidden, hidden, heads * 3)
    total = keys + past
    return {
        "query": d.tensor((batch, queries, hidden)),
        "key": d.tensor((batch, keys, hidden)),
        "value": d.tensor((batch, keys, value)),
        "bias": d.maybe(lambda: d.tensor((2 * hidden + value,))),
        "key_padding_mask": _mask(d, batch, queries, total),
        "attention_bias": d.maybe(lambda: d.tensor((d.choose(batch, 1), d.choose(heads, 1), queries, total))),
        "past_key": d.tensor((batch, heads, past, size)) if past else OMIT,
        "past_value": d.tensor((batch, heads, past, size)) if past else OMIT,
        "num_heads": heads,
        "scale": d.choose(OMIT, OMIT, 0.5),
        "unidirectional": d.choose(OMIT, 0, 1) if queries <= total else OMIT,
        "outputs": d.choose(1, 3),
    }


@ops.case("GroupQueryAttention")
def group_query_attention(d: Draw) -> Arguments:
    batch, length, past = d.size(1, 3), d.choose(3, 1, 4), d.choose(0, 2, 3)
    shared, groups, size = d.choose(1, 2), d.choose(2, 1, 3), d.choose(8, 16)
    length = 1 if past and d.choose(True, False) else length
    total = past + length
    rotates = d.boolean()
    capped = d.choose(OMIT, OMIT, 2.0)
    cache = (total + d.size(0, 2), size // 2)
    return {
        "query": d.tensor((batch, length, shared * groups * size)),
        "key": d.tensor((batch, length, shared * size)),
        "value": d.tensor((batch, length, shared * size)),
        "past_key": d.tensor((batch, shared, past, size)) if past else OMIT,
        "past_value": d.tensor((batch, shared, past, size)) if past else OMIT,
        "seqlens_k": [total - 1] * batch,
        "total_sequence_length": total,
        "cos_cache": d.tensor(cache, domain=between(-1.0, 1.0)) if rotates else OMIT,
        "sin_cache": d.tensor(cache, domain=between(-1.0, 1.0)) if rotates else OMIT,
        "attention_bias": OMIT
        if capped is not OMIT
        else d.maybe(lambda: d.tensor((d.choose(batch, 1), d.choose(shared * groups, 1), length, total))),
        "head_sink": d.maybe(lambda: d.tensor((shared * groups,))),
        "num_heads": shared * groups,
        "kv_num_heads": shared,
        "do_rotary": 1 if rotates else d.choose(OMIT, 0),
        "rotary_interleaved": d.choose(OMIT, 1) if rotates else OMIT,
        "local_window_size": d.choose(OMIT, OMIT, 1, 2),
        "softcap": capped,
        "smooth_softmax": d.choose(OMIT, OMIT, 1),
        "scale": d.choose(OMIT, OMIT, 0.5),
        "outputs": 3,
    }


@ops.case("RotaryEmbedding")
def rotary_embedding(d: Draw) -> Arguments:
    batch, length, heads, size = d.size(1, 3), d.size(1, 4), d.choose(2, 1, 3), d.choose(4, 8, 2)
    partial = d.choose(0, 0, 2) if size > 2 else 0
    is_flat = partial == 0 or d.boolean()
    most = length + d.size(0, 3)
    by_token = d.boolean()
    cache = (most, (partial or size) // 2)
    return {
        "input": d.tensor((batch, length, heads * size) if is_flat else (batch, heads, length, size)),
        "position_ids": d.tensor((batch, length), "int64", ("range", 0, most - 1)) if by_token else [most - length],
        "cos_cache": d.tensor(cache, domain=between(-1.0, 1.0)),
        "sin_cache": d.tensor(cache, domain=between(-1.0, 1.0)),
        "interleaved": d.choose(OMIT, 0, 1),
        "num_heads": heads if partial else d.choose(OMIT, heads),
        "rotary_embedding_dim": partial or OMIT,
    }


@ops.case("FusedMatMul", "TransposeMatMul")
def fused_matmul(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 6), d.size(1, 5)
    batch = d.choose((), (), (2,), (2, 3))
    turns_a, turns_b = d.boolean(), d.boolean()
    return {
        "A": d.tensor((*batch, *((inner, rows) if turns_a else (rows, inner)))),
        "B": d.tensor((*d.choose(batch, batch, ()), *((columns, inner) if turns_b else (inner, columns)))),
        "transA": 1 if turns_a else d.choose(OMIT, 0),
        "transB": 1 if turns_b else d.choose(OMIT, 0),
        "alpha": d.choose(OMIT, 0.5, 0.0, -2.0),
    }


_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid")


@ops.case("FusedGemm")
def fused_gemm(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 6), d.size(1, 5)
    turns_a, turns_b = d.boolean(), d.boolean()
    activation = d.choose(*_ACTIVATIONS)
    return {
        "A": d.tensor((inner, rows) if turns_a else (rows, inner)),
        "B": d.tensor((columns, inner) if turns_b else (inner, columns)),
        "C": d.maybe(lambda: d.tensor(d.choose((columns,), (rows, columns), (rows, 1), ()))),
        "transA": int(turns_a),
        "transB": int(turns_b),
        "alpha": d.choose(OMIT, 0.5, 2.0),
        "beta": d.choose(OMIT, 0.5, 0.0),
        "activation": activation,
        "activation_alpha": d.choose(0.1, 0.5) if activation in ("LeakyRelu", "HardSigmoid") else OMIT,
        "activation_beta": 0.5 if activation == "HardSigmoid" else OMIT,
    }


@ops.case("FusedConv")
def fused_conv(d: Draw) -> Arguments:
    batch, channels, outputs, side, kernel = (
        d.size(1, 2),
        d.size(1, 3),
        d.size(1, 3),
        d.choose(4, 3, 5),
        d.choose(2, 1, 3),
    )
    activation = d.choose(*_ACTIVATIONS, "Clip")
    parameters = {"LeakyRelu": [0.1], "HardSigmoid": [0.2, 0.4], "Clip": [-1.0, 1.5]}
    result = side - kernel + 1
    return {
        "X": d.tensor((batch, channels, side, side)),
        "W": d.tensor((outputs, channels, kernel, kernel)),
        "B": d.tensor((outputs,)),
        "Z": d.maybe(lambda: d.tensor((batch, outputs, result, result))),
        "activation": activation,
        "activation_params": parameters.get(activation, OMIT),
    }


@ops.case("MatMulNBits")
def matmul_nbits(d: Draw) -> Arguments:
    rows, columns, block = d.size(1, 5), d.choose(32, 16, 64, 40), d.choose(16, 32)
    bits = d.choose(4, 4, 8)
    blocks = -(-columns // block)
    packed = block * bits // 8
    return {
        "A": d.tensor((*d.choose((2,), (1,), (2, 3)), columns)),
        "B": d.tensor((rows, blocks, packed), "uint8", _CODES),
        "scales": d.tensor(d.choose((rows * blocks,), (rows, blocks)), domain=between(0.01, 1.0)),
        "zero_points": d.maybe(lambda: d.tensor((rows, -(-blocks * bits // 8)), "uint8", _CODES)),
        "bias": d.maybe(lambda: d.tensor((rows,))),
        "K": columns,
        "N": rows,
        "bits": bits,
        "block_size": block,
        "accuracy_level": d.choose(OMIT, 0, 1),
    }


@ops.case("QMoE")
def quantised_experts(d: Draw) -> Arguments:
    tokens, experts, hidden, inner = d.size(1, 4), d.choose(3, 2, 4), d.choose(32, 16), d.choose(32, 16)
    bits, block = d.choose((4, OMIT), (4, OMIT), (4, 16), (8, OMIT))
    each = 8 // bits

    def scales(rows: int, columns: int) -> Any:
        shape = (experts, rows) if block is OMIT else (experts, rows, columns // 16)
        return d.tensor(shape, domain=between(0.01, 0.5))

    def zeros(rows: int, columns: int) -> Any:
        shape = (experts, -(-rows // each)) if block is OMIT else (experts, rows, -(-(columns // 16) // each))
        return d.tensor(shape, "uint8", _CODES)

    has_zeros = d.choose(False, False, True)
    return {
        "input": d.tensor((tokens, hidden)),
        "router_probs": d.tensor((tokens, experts)),
        "fc1_experts_weights": d.tensor((experts, inner, hidden // each), "uint8", _CODES),
        "fc1_scales": scales(inner, hidden),
        "fc1_experts_bias": d.maybe(lambda: d.tensor((experts, inner))),
        "fc2_experts_weights": d.tensor((experts, hidden, inner // each), "uint8", _CODES),
        "fc2_scales": scales(hidden, inner),
        "fc2_experts_bias": d.maybe(lambda: d.tensor((experts, hidden))),
        "fc1_zero_points": zeros(inner, hidden) if has_zeros else OMIT,
        "fc2_zero_points": zeros(hidden, inner) if has_zeros else OMIT,
        "k": d.choose(1, 2),
        "expert_weight_bits": bits,
        "block_size": block,
        "activation_type": d.choose("relu", "gelu", "silu", "identity"),
        "normalize_routing_weights": d.choose(1, 1, 1, OMIT, 0),
    }
