"""`conformance check --where`: what ran where, as the runtime says, and what must."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import checked
from onnx_texts import saved

from harness.run.trt_execution import kernels_of_layers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a sum and an activation."""
    nodes = "y = MatMul (x, w) z = Sigmoid (y)"
    return saved(tmp_path / "file.onnx", "float[2,8] x", "float[2,8] z", nodes, w=np.ones((8, 8), np.float32))


def test_onnx_runtime_names_provider_and_dtypes(path: Path) -> None:
    (report,) = checked(path, "--where")["kernels"]
    assert {(n["operator"], n["device"], tuple(n["dtypes"])) for n in report["nodes"]} == {
        ("MatMul", "CPUExecutionProvider", ("float",)),
        ("Sigmoid", "CPUExecutionProvider", ("float",)),
    }


def test_openvino_names_kernels(path: Path) -> None:
    pytest.importorskip("openvino")
    (report,) = checked(path, "--where", "--backend", "openvino")["kernels"]
    assert {node["device"] for node in report["nodes"]} == {"CPU"}
    assert all(node["dtypes"] == ["f32"] and node["kernel"] for node in report["nodes"])


def test_a_required_device_and_dtype_fail_a_right_model(path: Path) -> None:
    assert checked(path, "--require-device", "cpu", "--require-dtype", "float32")["ways"][0]["survives"]
    for required in (("--require-device", "cuda"), ("--require-dtype", "float16")):
        assert typed_status(path, *required) == 1
    # ONNX Runtime has no float16 kernel of MatMul on a CPU, and computes it in float32.
    assert typed_status(path, "--transform", "float16", "--require-dtype", "float16") == 1


def typed_status(*words: str | Path) -> int:
    """Return the exit status of a check."""
    from commands import entered

    return entered("check", *words).exit_code


def test_a_runtime_that_says_nothing_is_not_as_required(path: Path) -> None:
    pytest.importorskip("tract")
    assert checked(path, "--where", "--backend", "tract")["kernels"][0]["problem"]
    assert typed_status(path, "--require-device", "cpu", "--backend", "tract") == 1


def test_the_layers_of_an_engine_have_dtypes_and_tactics() -> None:
    # As TensorRT's developer guide shows the inspector's answer.
    tensors = [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Row major linear FP16 format"}]
    outputs = [
        {"Name": "y", "Dimensions": [1, 4, 6, 6], "Format/Datatype": "Four wide channel vectorized row major Int8"}
    ]
    layer = {
        "Name": "conv + relu",
        "LayerType": "CaskConvolution",
        "Inputs": tensors,
        "Outputs": outputs,
        "TacticName": "sm80_xmma_fprop_implicit_gemm_f16f16",
    }
    first, second = kernels_of_layers([layer, "shuffle"])
    assert (first.operator, first.dtypes) == ("CaskConvolution", ("float16", "int8"))
    assert first.kernel == "sm80_xmma_fprop_implicit_gemm_f16f16"
    assert (second.name, second.dtypes) == ("shuffle", ())
