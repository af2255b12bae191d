"""A runtime's refusal is reported with its kind and its nodes."""

from __future__ import annotations

import pickle

import numpy as np
import onnxruntime
import psutil
import pytest
from backend_models import F32, determinant, start, unary
from onnx_texts import onnx_model

from harness.run import cuda as _cuda
from harness.run.backend import Backend, BackendFailure, DeviceLost, HasPassLog, InvalidModel, UnsupportedModel
from harness.run.backends.ort import OrtBackend


@pytest.fixture(scope="module")
def ort() -> Backend:
    return start("ort-cpu")


@pytest.mark.parametrize("name", ["ort-cpu", "ort-web", "openvino", "onnx-api:onnxruntime.backend", "tract", "trt-rtx"])
def test_unsupported_operator_names_its_node(name: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        start(name).load(determinant(), None)
    assert caught.value.nodes == ("bad one (1)",)


def test_the_reference_evaluator_names_an_operator_that_it_lacks() -> None:
    pooled = "[roi] y = MaxRoiPool <pooled_shape = [1, 1]> (x, r)"
    model = onnx_model("float[1,1,4,4] x, float[1,5] r", "float[1,1,1,1] y", pooled, opset=18)
    with pytest.raises(UnsupportedModel, match="MaxRoiPool") as caught:
        start("onnx-reference").load(model, None)
    assert caught.value.nodes == ("roi",)


@pytest.mark.parametrize(
    "name", ["ort-cpu", "ort-web", "onnx-reference", "openvino", "tract", "iree", "tvm", "trt-rtx"]
)
def test_unknown_domain_is_unsupported(name: str) -> None:
    nodes = "[custom] y = my.domain.Foo (x)"
    model = onnx_model("float[2] x", "float[2] y", nodes, opset=18, domain="my.domain")
    with pytest.raises(UnsupportedModel) as caught:
        start(name).load(model, None)
    assert caught.value.nodes == ("custom",)


@pytest.mark.parametrize("name", ["ort-cpu", "openvino", "tract", "trt-rtx"])
def test_invalid_model_names_its_node(name: str) -> None:
    nodes = "[fine] y = Relu (x) [wrong_product] z = MatMul (a, a)"
    model = onnx_model("float[2] x, float[2,3] a", "float[2] y, float[a,b] z", nodes, opset=18)
    with pytest.raises(InvalidModel) as caught:
        start(name).load(model, None)
    assert caught.value.nodes == ("wrong_product",)


def test_tract_names_the_nodes_of_a_dtype_that_it_lacks() -> None:
    nodes = "[fine] y = Relu (x) [of_bfloat16] z = Abs (b)"
    model = onnx_model("float[2] x, bfloat16[2] b", "float[2] y, bfloat16[2] z", nodes, opset=18)
    with pytest.raises(UnsupportedModel) as caught:
        start("tract").load(model, None)
    assert caught.value.nodes == ("of_bfloat16",)


def test_newer_opset_is_unsupported(ort: Backend) -> None:
    model = unary("Relu", F32, [2])
    model.opset_import[0].version = 999
    with pytest.raises(UnsupportedModel):
        ort.load(model, None)


def test_ort_names_the_node_that_fails_at_run_time(ort: Backend) -> None:
    nodes = "[fine] r = Relu (x) [shaping] y = Reshape (x, s)"
    model = onnx_model("float[n] x, int64[k] s", "float[a,b] y, float[n] r", nodes, opset=18)
    session = ort.load(model, None)
    with pytest.raises(BackendFailure) as caught:
        session.run({"x": np.zeros(4, np.float32), "s": np.array([3])})
    assert caught.value.nodes == ("shaping",)
    (y, _) = session.run({"x": np.zeros(4, np.float32), "s": np.array([2, 2])})
    assert y.shape == (2, 2)


def test_a_failure_on_a_device_without_memory_is_a_lost_device(monkeypatch: pytest.MonkeyPatch) -> None:
    azure = OrtBackend("azure", "azure", "AzureExecutionProvider")
    model = onnx_model("float[n] x, int64[k] s", "float[a,b] y", "[shaping] y = Reshape (x, s)", opset=18)
    feeds = {"x": np.zeros(4, np.float32), "s": np.array([3])}
    session = azure.load(model, None)
    with pytest.raises(BackendFailure, match="shaping"):
        session.run(feeds)

    def refuse(*given: object, **more: object) -> None:
        # As ONNX Runtime says it where other processes hold the memory of a GPU.
        raise RuntimeError("CUBLAS failure 3: the resource allocation failed ; GPU=0")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    with pytest.raises(DeviceLost, match=r"shaping.*; then .*allocation failed"):
        session.run(feeds)
    with pytest.raises(DeviceLost, match="allocation failed"):
        azure.load(model, None)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "AzureExecutionProvider"])
def test_ort_is_not_to_repeat_on_the_cpu_what_another_provider_fails_at(provider: str) -> None:
    session = OrtBackend("ort", "any", provider).load(unary("Relu", F32, [2]), None)
    # No provider that can be installed everywhere fails so.
    assert session._session._enable_fallback is False


def test_ort_prints_nothing_when_it_fails(ort: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedModel):
        ort.load(determinant(), None)
    assert capfd.readouterr() == ("", "")


def test_errors_cross_processes_with_their_nodes() -> None:
    error = pickle.loads(pickle.dumps(UnsupportedModel("no", ["a", "b"], {"a": "because"})))
    assert (type(error), str(error)) == (UnsupportedModel, "no")
    assert (error.nodes, error.reasons) == (("a", "b"), {"a": "because"})


def test_cuda_messages_do_not_name_the_machine() -> None:
    # As ONNX Runtime 1.31 says it without a driver.
    where = "file=/onnxruntime_src/cuda_execution_provider.cc ; line=355 ; expr=cudaSetDevice(info_.device_id);"
    message = "CUDA failure 36: API call is not supported in the installed CUDA driver ; GPU=-1 ; hostname=vm ; "
    error = RuntimeError(message + where)
    assert _cuda.strip_host_name(error) == str(error) == message.replace(" ; hostname=vm", "") + where


@pytest.mark.parametrize(
    ("message", "sticky"),
    [
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA error: device-side assert triggered", True),
        ("[ONNXRuntimeError] : 20 : DEVICE_RESET : the device was removed", True),
        ("CUDA failure 2: out of memory", False),
        ("Non-zero status code returned while running Reshape node. Name:'700'", False),
    ],
)
def test_cuda_faults_that_stick_are_told_from_others(message: str, sticky: bool) -> None:
    assert _cuda.is_sticky(message) is sticky


def test_a_process_of_node_that_ends_is_a_lost_device() -> None:
    children = set(psutil.Process().children())
    backend = start("ort-web")
    session = backend.load(unary("Relu", F32, [2]), None)
    (node_process,) = set(psutil.Process().children()) - children
    node_process.kill()
    with pytest.raises(DeviceLost, match="Node ended with status -9"):
        session.run({"x": np.ones(2, np.float32)})


def test_onnx_runtime_tells_which_optimisations_change_a_model(ort: Backend) -> None:
    nodes = "y = Relu (x) z = Identity (y) c = Clip (z, low, high)"
    model = onnx_model("float[2] x, float low, float high", "float[2] c", nodes, opset=18)
    assert isinstance(ort, HasPassLog)
    assert ort.applied_passes(model) == ("EliminateIdentity",)
    assert ort.applied_passes(unary("Relu", F32, [2])) == ()


def test_a_model_that_loads_for_its_optimisations_alone_tells_them(ort: Backend) -> None:
    # ONNX Runtime has no Relu of integers, and joins this one with the bound.
    model = onnx_model("int64[2] x", "int64[2] c", 'y = Relu (x) c = Clip (y, "", high)', opset=18, high=3)
    assert isinstance(ort, HasPassLog)
    assert ort.load(model, None).run({"x": np.array([-5, 5])})[0].tolist() == [0, 3]
    assert "FuseReluClip" in ort.applied_passes(model)
