"""`conformance check --transform`: what a narrow dtype costs is right, and what leaves its range is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import checked
from onnx_texts import saved

_RANDOM = np.random.default_rng(0)
#: A matrix whose columns are of several sizes.
SPREAD = (_RANDOM.normal(size=(32, 32)) * np.exp(_RANDOM.normal(size=(1, 32)))).astype(np.float32)


#: One that gives logits between -40 and 40.
WIDE = (_RANDOM.normal(size=(32, 32)) * 2).astype(np.float32)


def residual(folder: Path) -> Path:
    """Save a residual stream with a peak beyond float16, which a normalisation hides."""
    nodes = "y = MatMul (x, w) p = Mul (y, k) a = Add (p, y) z = LayerNormalization (a, one)"
    weights = {"w": SPREAD, "k": np.float32(3000), "one": np.ones(32, np.float32)}
    return saved(folder / "residual.onnx", "float[4,32] x", "float[4,32] z", nodes, **weights)


def log_softmax(folder: Path) -> Path:
    """Save a softmax, some of whose results vanish in float16, and its logarithm."""
    nodes = "y = MatMul (x, w) s = Softmax (y) z = Log (s)"
    return saved(folder / "soft.onnx", "float[4,32] x", "float[4,32] z", nodes, w=WIDE)


def test_the_node_that_leaves_float16_is_named_as_the_transforms(tmp_path: Path) -> None:
    (way,) = checked(residual(tmp_path), "--transform", "float16", status=1)["ways"]
    cause = way["cause"]
    assert (way["owner"], cause["place"], cause["fault"]) == ("transform", "float16, Mul", "leaves-range")
    assert (way["range_loss"]["change"], way["range_loss"]["value"]) == ("overflows", "p")
    assert way["range_loss"]["largest"] > 65504


def test_a_runtime_that_hides_it_is_right_and_the_node_is_named(tmp_path: Path) -> None:
    (way,) = checked(log_softmax(tmp_path), "--transform", "float16")["ways"]
    loss = way["range_loss"]
    assert (loss["change"], loss["operator"], loss["value"]) == ("vanishes", "Softmax", "s")


def test_openvino_computes_it_in_float32_and_is_right(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = residual(tmp_path)
    (way,) = checked(path, "--transform", "float16-common-keep-io", "--backend", "openvino")["ways"]
    assert way["range_loss"]["value"] == "p"


def test_unsorted_nodes_are_the_transforms_and_the_numbers_behind_are_judged(tmp_path: Path) -> None:
    path = saved(tmp_path / "two.onnx", "float[4] x", "float[4] y", "r = Relu (x) y = Exp (r)")
    (way,) = checked(path, "--transform", "float16-keep-io", status=1)["ways"]
    assert (way["owner"], way["cause"]["fault"]) == ("transform", "unsorted")
    assert {run["stage"] for run in way["runs"]} == {"check"}


def test_the_cost_is_in_numbers(tmp_path: Path) -> None:
    nodes = "y = MatMul (x, w)"
    path = saved(tmp_path / "rows.onnx", "float[4,32] x", "float[4,32] y", nodes, w=SPREAD)
    for way in checked(path, "--transform", "float16", "--transform", "quantize-static")["ways"]:
        for run in way["accuracy"]:
            assert 0 < run["error"] < 0.1
            assert 20 < run["sqnr"] < 100
            assert (run["rows"], run["range_loss"]) == (4, None)
            assert len(run["margins"]) == run["top1"] >= run["top5"]
    # Eight bits cost more than eleven.
    half, eighth = (
        way["accuracy"][0]["sqnr"]
        for way in checked(path, "--transform", "float16", "--transform", "quantize-static")["ways"]
    )
    assert half > eighth


#: Model → transforms that are right on it.
PIPELINES = [
    *[("vit", name) for name in ("float16", "quantize-dynamic", "ort-fusions:vit", "quantize-static-per-channel")],
    *[("resnet18", name) for name in ("float16", "quantize-static-reduce-range")],
    ("resnet18", "quantize-static-qoperator-per-channel-reduce-range"),
    *[("bert-encoder", name) for name in ("ort-fusions:bert", "ort-fusions:bert+float16")],
    *[("llama-decoder", name) for name in ("int4", "int4-level-4", "float16-common-keep-io")],
    ("whisper", "float16"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "transform"), PIPELINES)
def test_a_right_pipeline_is_not_blamed(model: str, transform: str) -> None:
    (way,) = checked(model, "--transform", transform, "--shapes", "static")["ways"]
    assert (way["owner"], way["range_loss"]) == ("", None)


def test_an_overflow_that_a_quotient_absorbs_is_named(tmp_path: Path) -> None:
    # As in microsoft/onnxruntime#31626: the variance is infinite, the quotient zero, and no output is infinite or NaN.
    nodes = (
        "m = ReduceMean <keepdims = 1> (x, axes) d = Sub (x, m) q = Mul (d, d) v = ReduceMean <keepdims = 1> (q, axes) "
        "e = Add (v, epsilon) s = Sqrt (e) z = Div (d, s)"
    )
    weights = {"axes": np.array([-1]), "epsilon": np.float32(1e-5)}
    path = saved(tmp_path / "norm.onnx", "float[2,8] x", "float[2,8] z", nodes, **weights)
    np.savez(tmp_path / "x.npz", x=np.linspace(-800, 800, 16, dtype=np.float32).reshape(2, 8))
    (way,) = checked(path, "--transform", "float16", "--inputs", tmp_path / "x.npz")["ways"]
    assert (way["range_loss"]["operator"], way["range_loss"]["value"]) == ("Mul", "q")


@pytest.mark.parametrize(("approximate", "owner"), [("none", ""), ("tanh", "transform")])
def test_a_fusion_that_drops_an_attribute_is_named(approximate: str, owner: str, tmp_path: Path) -> None:
    # FusionBiasGelu takes either form of Gelu for the exact one.
    nodes = f'm = MatMul (x, w) a = Add (m, b) y = Gelu <approximate = "{approximate}"> (a)'
    weights = {"w": np.eye(8, dtype=np.float32), "b": np.linspace(-1, 1, 8, dtype=np.float32)}
    path = saved(tmp_path / "gelu.onnx", "float[4,8] x", "float[4,8] y", nodes, **weights)
    (way,) = checked(path, "--transform", "ort-fusions:gpt2", status=int(owner != ""))["ways"]
    assert way["owner"] == owner
    if owner:
        statement = way["cause"]["place"], way["cause"]["fault"]
        assert statement == ("ort-fusions:gpt2", "values")
