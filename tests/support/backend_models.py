"""Small models and helpers shared by the tests of the backends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from harness.run import cuda as _cuda
from harness.run.backend import BACKENDS, Backend

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
Info = onnx.ValueInfoProto
node = helper.make_node


def info(name: str, element: int, shape: Sequence[int | str | None] | None) -> Info:
    return helper.make_tensor_value_info(name, element, shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 18,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def unary(operator: str, element: int, shape: Sequence[int | str | None] | None) -> onnx.ModelProto:
    return model_of(
        [node(operator, ["x"], ["y"], name="the_node")],
        [info("x", element, shape)],
        [info("y", element, shape)],
    )


def start(name: str) -> Backend:
    if name == "openvino":
        pytest.importorskip("openvino")
    if name == "trt-rtx":
        pytest.importorskip("tensorrt_rtx_bindings")
    entry, argument = BACKENDS.find(name)
    problem = entry.probe(argument)
    assert problem is None, problem
    return entry.create(argument)


def run(backend: Backend, model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = backend.load(model, None)
    assert session.runnable
    return session.run(feeds)


def exact(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()
    assert actual.flags.c_contiguous


#: ONNX Runtime's CPU has no float64 Det, OpenVINO and TensorRT have no Det at all.
DET = [
    node("Relu", ["x"], ["y"], name="fine"),
    node("Det", ["w"], ["d"], name="bad one (1)"),
]
DET_IO = (
    [info("x", F32, [2]), info("w", TensorProto.DOUBLE, [2, 2])],
    [info("y", F32, [2]), info("d", TensorProto.DOUBLE, [])],
)


needs_no_gpu = pytest.mark.skipif(_cuda.missing_gpu() is None, reason="says what happens without a GPU")
