"""The definitions of ONNX Runtime's own operators give what PyTorch gives, and ONNX Runtime with everyday numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from onnx import helper
from torch.nn import functional as F

from harness.pipeline.nodes.contrib import CONTRIB
from harness.pipeline.nodes.node_call import NodeCall
from harness.pipeline.run_graph import run_graph
from harness.pipeline.start import start_backend

Array = npt.NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def defined(operator: str, inputs: Mapping[str, Any], outputs: int = 1, **attributes: Any) -> Sequence[Array]:
    """Return what the definition of an operator gives; asserts that ONNX Runtime gives it, too."""
    given = {name: array for name, array in inputs.items() if array is not None}
    results = [f"r{i}" for i in range(outputs)]
    node = helper.make_node(
        operator, [n if n in given else "" for n in inputs], results, domain="com.microsoft", **attributes
    )
    right = CONTRIB[operator](NodeCall(node, list(inputs.values()), 21, "float32"))
    assert right is not None
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    made = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(results, right, strict=True)
    ]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", values, made), opset_imports=imports, ir_version=10)
    got = run_graph(start_backend("ort-cpu"), model, given).outputs_or_raise()
    for ours, theirs in zip(right, got, strict=True):
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(theirs, ours, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(theirs, ours)
    return right


def close(got: Array, right: torch.Tensor) -> None:
    np.testing.assert_allclose(got, right.numpy(), rtol=1e-5, atol=1e-6)


def heads(x: Array, count: int) -> torch.Tensor:
    return torch.from_numpy(x.reshape(*x.shape[:2], count, -1)).transpose(1, 2)


def test_attention_projects_and_attends_causally() -> None:
    x, weights, bias = numbers(2, 3, 5), numbers(5, 24, seed=1), numbers(24, seed=2)
    (got,) = defined("Attention", {"x": x, "w": weights, "b": bias}, num_heads=2, unidirectional=1)
    q, k, v = np.split(x @ weights + bias, 3, axis=-1)
    right = F.scaled_dot_product_attention(heads(q, 2), heads(k, 2), heads(v, 2), is_causal=True)
    close(got, right.transpose(1, 2).flatten(2))


def test_multi_head_attention_adds_past_bias_and_mask() -> None:
    q, k, v = numbers(2, 3, 8), numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    past_k, past_v, added = numbers(2, 2, 2, 4, seed=3), numbers(2, 2, 2, 4, seed=4), numbers(2, 2, 3, 6, seed=5)
    mask = np.array([[1, 1, 0, 1, 1, 1], [0, 1, 1, 1, 1, 0]], np.int32)
    inputs = {"q": q, "k": k, "v": v, "b": None, "m": mask, "a": added, "pk": past_k, "pv": past_v}
    got, keys, _ = defined("MultiHeadAttention", inputs, outputs=3, num_heads=2)
    whole_k = torch.cat([torch.from_numpy(past_k), heads(k, 2)], 2)
    whole_v = torch.cat([torch.from_numpy(past_v), heads(v, 2)], 2)
    bias = torch.from_numpy(added) + torch.from_numpy(np.where(mask, 0.0, -np.inf)[:, None, None]).float()
    right = F.scaled_dot_product_attention(heads(q, 2), whole_k, whole_v, attn_mask=bias)
    close(got, right.transpose(1, 2).flatten(2))
    close(keys, whole_k)


def test_a_window_of_grouped_attention_counts_the_query_s_own_key() -> None:
    q, k, v = numbers(1, 4, 32), numbers(1, 4, 16, seed=1), numbers(1, 4, 16, seed=2)
    inputs = {"q": q, "k": k, "v": v, "pk": None, "pv": None, "s": np.array([3], np.int32), "t": np.array(4, np.int32)}
    (got, *_) = defined("GroupQueryAttention", inputs, outputs=3, num_heads=4, kv_num_heads=2, local_window_size=2)
    place = torch.arange(4)
    allowed = (place[None] <= place[:, None]) & (place[None] > place[:, None] - 2)
    right = F.scaled_dot_product_attention(heads(q, 4), heads(k, 2), heads(v, 2), attn_mask=allowed, enable_gqa=True)
    close(got, right.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings_turn_pairs(interleaved: int) -> None:
    x, angles = numbers(2, 3, 8), numbers(5, 2, seed=1)
    inputs = {"x": x, "p": np.array([[0, 1, 2], [2, 3, 4]]), "c": np.cos(angles), "s": np.sin(angles)}
    (got,) = defined("RotaryEmbedding", inputs, interleaved=interleaved)
    pairs = heads(x, 2).reshape(2, 2, 3, 2, 2)
    pairs = pairs if interleaved else pairs.transpose(-1, -2)
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
        torch.ones(2, 1, 3, 2), torch.from_numpy(angles[inputs["p"]])[:, None]
    )
    right = torch.view_as_real(turned)
    right = right if interleaved else right.transpose(-1, -2)
    close(got, right.flatten(-2).transpose(1, 2).flatten(2))


def test_embeddings_are_looked_up_added_and_normalised() -> None:
    ids, kinds = np.array([[1, 0, 2]], np.int32), np.array([[0, 1, 1]], np.int32)
    words, places, segments = numbers(3, 4), numbers(5, 4, seed=1), numbers(2, 4, seed=2)
    gamma, beta, mask = numbers(4, seed=3), numbers(4, seed=4), np.array([[1, 1, 0]], np.int32)
    inputs = {"i": ids, "k": kinds, "w": words, "p": places, "s": segments, "g": gamma, "b": beta, "m": mask}
    got, count = defined("EmbedLayerNormalization", inputs, outputs=2, epsilon=1e-5)
    total = torch.from_numpy(words[ids] + places[None, :3] + segments[kinds])
    close(got, F.layer_norm(total, (4,), torch.from_numpy(gamma), torch.from_numpy(beta), 1e-5))
    assert count.tolist() == [2]


def test_quantised_experts_are_mixed_by_their_shares() -> None:
    x, router = numbers(3, 16), numbers(3, 4, seed=1)
    codes = np.random.default_rng(2).integers(0, 256, (2, 4, 16, 8), np.uint8)
    scales = np.abs(numbers(2, 4, 16, seed=3)) / 8
    inputs = {"x": x, "r": router, "w1": codes[0], "s1": scales[0], "b1": None, "w2": codes[1], "s2": scales[1]}
    (got,) = defined("QMoE", inputs, k=2, normalize_routing_weights=1, activation_type="silu")
    wide = np.stack([codes & 15, codes >> 4], -1).reshape(2, 4, 16, 16).astype(np.float32) - 8
    first, second = torch.from_numpy(wide * scales[..., None])
    shares, chosen = torch.from_numpy(router).topk(2, -1)
    token = torch.from_numpy(x)[:, None, :, None]
    hidden = F.silu(first[chosen] @ token)
    right = (shares.softmax(-1)[..., None] * (second[chosen] @ hidden).squeeze(-1)).sum(1)
    close(got, right)


def test_quantised_sums_are_rounded_to_even_and_saturated() -> None:
    a, b = np.array([0, 10, 255], np.uint8), np.array([1, 1, 255], np.uint8)
    scale, zero = np.array(0.5, np.float32), np.array(0, np.uint8)
    inputs = {
        "a": a,
        "as": scale,
        "az": zero,
        "b": b,
        "bs": scale,
        "bz": zero,
        "cs": np.array(1, np.float32),
        "cz": zero,
    }
    (got,) = defined("QLinearAdd", inputs)
    assert got.tolist() == [0, 6, 255]


def test_a_form_that_the_text_leaves_open_has_no_definition() -> None:
    node = helper.make_node("Attention", ["x", "w"], ["y"], domain="com.microsoft", num_heads=1, do_rotary=1)
    assert CONTRIB["Attention"](NodeCall(node, [numbers(1, 1, 2), numbers(2, 6)], 21, "float32")) is None
