"""Small models and helpers shared by the tests of the backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_texts import onnx_model

from harness.run import cuda as _cuda
from harness.run.backend import BACKENDS, Backend, BackendSession, ShapeRange, UnsupportedModel

F32 = TensorProto.FLOAT


def unary(operator: str, element: int, shape: Sequence[int | str | None]) -> onnx.ModelProto:
    """Return a model of one node, ``the_node``, whose input and output have this dtype and these sizes."""
    values = [helper.make_tensor_value_info(name, element, shape) for name in "xy"]
    node = helper.make_node(operator, ["x"], ["y"], name="the_node")
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def start(name: str) -> Backend:
    if name == "openvino":
        pytest.importorskip("openvino")
    if name == "trt-rtx":
        pytest.importorskip("tensorrt_rtx_bindings")
    entry, argument = BACKENDS.find(name)
    problem = entry.probe(argument)
    if problem is not None and name in ("ort-web", "ort-webgpu", "iree", "tvm"):
        pytest.skip(problem.reason)
    assert problem is None, problem
    return entry.create(argument)


#: Of these a test has the mark ``gpu``: `ci/gpu_check` runs them on machines that have one.
GPU_BACKENDS = ("ort-cuda", "trt", "trt-rtx")
ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in GPU_BACKENDS]


class _Skipping:
    """A backend of a GPU; a test of what it does not support is skipped."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.name, self.device, self.version = inner.name, inner.device, inner.version

    def narrows(self, dtype: str) -> str | None:
        return self._inner.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        try:
            return self._inner.load(model, shapes)
        except UnsupportedModel as error:
            pytest.skip(f"{self.name} does not support it: {error}")


def start_to_run(name: str) -> Backend:
    """Start a backend; skip the test if the backend needs a missing GPU, or only builds."""
    if name not in GPU_BACKENDS:
        return start(name)
    entry, argument = BACKENDS.find(name)
    if problem := entry.probe(argument):
        pytest.skip(problem.reason)
    backend = entry.create(argument)
    if why := getattr(backend, "build_only", None):
        pytest.skip(f"{name} builds engines and does not run them: {why}")
    return _Skipping(backend)


def run(backend: Backend, model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = backend.load(model, None)
    assert session.runnable
    return session.run(feeds)


def exact(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()
    assert actual.flags.c_contiguous


def determinant() -> onnx.ModelProto:
    """Return a model with a node that ONNX Runtime's CPU lacks for float64, and OpenVINO and TensorRT altogether."""
    nodes = "[fine] y = Relu (x) [bad] d = Det (w)"
    model = onnx_model("float[2] x, double[2,2] w", "float[2] y, double d", nodes, opset=18)
    model.graph.node[1].name = "bad one (1)"
    return model


needs_no_gpu = pytest.mark.skipif(_cuda.missing_gpu() is None, reason="says what happens without a GPU")
