"""`conformance check --headroom`: the largest values, and a minimal set of nodes to keep in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import answered, typed
from onnx.reference import ReferenceEvaluator
from onnxconverter_common.float16 import convert_float_to_float16
from test_transformed_models import log_softmax, residual


def is_finite_in_half(path: Path, kept: list[str], x: np.ndarray) -> bool:
    """Whether onnx's evaluator gives numbers for the float16 graph that keeps some nodes in float32."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = node.output[0]
    # This converter takes out the casts to float16 and back between two kept nodes itself.
    half = convert_float_to_float16(model, keep_io_types=True, node_block_list=kept)
    (output,) = ReferenceEvaluator(half).run(None, {"x": x})
    return bool(np.isfinite(output).all())


@pytest.mark.parametrize(("make", "kept"), [(residual, {"p", "a", "z"}), (log_softmax, {"s", "z"})])
def test_no_node_of_the_set_can_be_left_out(make: object, kept: set[str], tmp_path: Path) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    x = np.random.default_rng(3).normal(size=(4, 32)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    found = answered("check", path, "--headroom", "float16", "--inputs", tmp_path / "x.npz")
    names = [node["node"] for node in found["kept"]]
    assert set(names) == kept
    assert found["error"] <= found["limit"]
    assert found["runtime_error"] <= found["limit"]
    with np.errstate(all="ignore"):
        assert is_finite_in_half(path, names, x)
        for left_out in names:
            assert not is_finite_in_half(path, [name for name in names if name != left_out], x)
    # JSON has no infinity.
    assert all((node["error_without"] or np.inf) > found["limit"] for node in found["kept"])
    assert all(f"{name}:fp32" in found["options"]["trtexec"] for name in names)


def test_the_peaks_are_those_of_the_graph(tmp_path: Path) -> None:
    path = residual(tmp_path)
    x = np.random.default_rng(3).normal(size=(4, 32)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    peaks = answered("check", path, "--headroom", "float16", "--inputs", tmp_path / "x.npz")["peaks"]
    model = onnx.load(path)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in "ypaz")
    values = onnxruntime.InferenceSession(
        onnx.shape_inference.infer_shapes(model).SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    assert {peak["value"]: peak["largest"] for peak in peaks} == pytest.approx(
        {name: float(np.abs(value).max()) for name, value in zip("ypaz", values, strict=True)}, rel=1e-4
    )


def test_a_model_that_fits_needs_no_node(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), "
        "(torch.randn(2, 4),)\n"
    )
    found = answered("check", f"{model}:make", "--headroom", "float16")
    assert (found["kept"], found["problem"], found["unnamed"]) == ([], "", 0)


def test_options_that_have_no_meaning_are_refused(tmp_path: Path) -> None:
    done = typed("check", residual(tmp_path), "--headroom", "float16", "--transform", "float16", status=2)
    assert "--transform has no effect with --headroom" in done.output
