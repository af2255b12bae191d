"""TensorRT-RTX, which parses and builds for real without a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
import torch
from backend_models import F32, determinant, needs_no_gpu, start, unary
from onnx_texts import onnx_model

from harness.run.backend import BACKENDS, Backend, BackendFailure, ShapeRange, UnsupportedModel
from harness.run.trt_execution import copy_from_buffer, make_allocator


@pytest.fixture(scope="module")
def rtx() -> Backend:
    return start("trt-rtx")


def build(rtx: Backend, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None = None) -> int:
    session = rtx.load(model, shapes)
    size: int = getattr(session, "plan_bytes", 0)
    return size


@needs_no_gpu
def test_rtx_builds_and_says_that_it_cannot_run(rtx: Backend) -> None:
    session = rtx.load(unary("Relu", F32, [2]), None)
    assert not session.runnable
    assert getattr(session, "plan_bytes", 0) > 1000
    with pytest.raises(BackendFailure, match="cannot run here"):
        session.run({"x": np.zeros(2, np.float32)})


#: A logger that allocates until Python collects the garbage, and garbage that holds a builder.
COLLECTING = """
import gc

from harness.run import trt_execution
from harness.run.backend import BACKENDS

make_logger = trt_execution.make_logger


def make_collecting_logger(module):
    gc.disable()
    ring = [module.Builder(make_logger(module))]
    ring.append(ring)

    class Collecting(type(make_logger(module))):
        def log(self, severity, message):
            kept = [[] for _ in range(5000)]

    logger = Collecting()
    gc.enable()
    return logger


trt_execution.make_logger = make_collecting_logger
entry, argument = BACKENDS.find("trt-rtx")
print(entry.create(argument).name)
"""


@needs_no_gpu
def test_a_builder_that_is_garbage_does_not_hold_up_the_next() -> None:
    start("trt-rtx")
    done = subprocess.run([sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=60)
    assert done.stdout == "trt-rtx\n", done.stderr


@needs_no_gpu
@pytest.mark.parametrize("shape", [(), (0, 3), (1,) * 8])
def test_rtx_builds_odd_shapes(rtx: Backend, shape: tuple[int, ...]) -> None:
    assert build(rtx, unary("Relu", F32, shape)) > 1000


@needs_no_gpu
def test_rtx_builds_what_passes_through_and_comes_twice(rtx: Backend) -> None:
    model = onnx_model("float[2] x", "float[2] y, float[2] x", "y = Relu (x)", opset=18)
    assert build(rtx, model) > 1000


@needs_no_gpu
def test_rtx_dynamic_shapes_need_ranges(rtx: Backend) -> None:
    model = unary("Relu", F32, ["n", 3])
    ranges = {"x": ShapeRange(min=(0, 3), opt=(2, 3), max=(5, 3))}
    assert build(rtx, model, ranges) > 1000
    with pytest.raises(ValueError, match="'x' has no range"):
        rtx.load(model, None)


@needs_no_gpu
def test_rtx_goes_on_after_failures(rtx: Backend) -> None:
    for _ in range(3):
        with pytest.raises(UnsupportedModel):
            rtx.load(determinant(), None)
        assert build(rtx, unary("Relu", F32, [2])) > 1000


def test_rtx_reports_every_unsupported_node(rtx: Backend) -> None:
    nodes = "[first] a = Det (w) [fine] b = Relu (w) [second] c = my.domain.Foo (w)"
    outputs = "float a, float[2,2] b, float[2,2] c"
    model = onnx_model("float[2,2] w", outputs, nodes, opset=18, domain="my.domain")
    with pytest.raises(UnsupportedModel) as caught:
        rtx.load(model, None)
    assert caught.value.nodes == ("first", "second")
    assert "Det" in caught.value.reasons["first"]
    assert "Plugin not found" in caught.value.reasons["second"]


@pytest.mark.parametrize("kind", ["int16[2]", "float[1,1,1,1,1,1,1,1,1]"])
def test_rtx_blames_the_readers_of_an_input_that_it_cannot_hold(rtx: Backend, kind: str) -> None:
    nodes = "[fine] y = Relu (x) [reader] z = Neg (w)"
    model = onnx_model(f"float[2] x, {kind} w", f"float[2] y, {kind} z", nodes, opset=18)
    with pytest.raises(UnsupportedModel) as caught:
        rtx.load(model, None)
    assert caught.value.nodes == ("reader",)


def test_rtx_limit_found_while_building_names_its_node(rtx: Backend) -> None:
    node = "[too_much] v, i = TopK (x, k)"
    model = onnx_model("float[5000] x", "float[4000] v, int64[4000] i", node, opset=18, k=[4000])
    with pytest.raises(UnsupportedModel, match="exceeds the maximum") as caught:
        rtx.load(model, None)
    assert caught.value.nodes == ("too_much",)


def test_rtx_refuses_an_input_that_determines_shapes(rtx: Backend) -> None:
    model = onnx_model("float[4] x, int64[2] s", "float[a,b] y", "[shaping] y = Reshape (x, s)", opset=18)
    with pytest.raises(UnsupportedModel, match="determines shapes") as caught:
        rtx.load(model, None)
    assert caught.value.nodes == ("shaping",)


def test_rtx_narrows_float64_only(rtx: Backend) -> None:
    trt = pytest.importorskip("tensorrt_rtx_bindings")
    log = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    model = onnx_model("double[2] x, int64[2] i", "double[2] y, int64[2] j", "y = Neg (x) j = Neg (i)", opset=18)
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    assert network.get_output(0).dtype == trt.DataType.FLOAT
    assert network.get_output(1).dtype == trt.DataType.INT64
    assert rtx.narrows("float64") == "float32"
    assert [rtx.narrows(dtype) for dtype in ("int64", "float32", "bfloat16")] == [None] * 3


def test_outputs_get_memory_or_a_reason_why_not() -> None:
    trt = pytest.importorskip("tensorrt_rtx_bindings")
    errors: list[str] = []
    allocator = make_allocator(trt, frozenset({"y", "z"}), errors)
    address = allocator.reallocate_output_async("y", 0, 24, 256, 0)
    assert address
    assert allocator.reallocate_output("y", address, 16, 256) == address
    assert allocator.reallocate_output("z", 0, 0, 256) not in (0, address)
    allocator.notify_shape("y", trt.Dims([2, 3]))
    assert allocator.shapes == {"y": (2, 3)}
    assert errors == []
    assert allocator.reallocate_output("y", address, 2**62, 256) == 0
    assert len(errors) == 1
    assert errors[0].startswith("no memory for the output 'y': ")


def test_outputs_in_host_memory_do_not_alias_the_next_run() -> None:
    buffer = torch.zeros(16, dtype=torch.uint8)
    found = copy_from_buffer(buffer, torch.float32, (3,))
    buffer.fill_(1)
    assert found.tolist() == [0.0, 0.0, 0.0]


def test_optimisation_level_is_checked(rtx: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_TRT_OPTIMIZATION_LEVEL", "9")
    with pytest.raises(ValueError, match="from 0 to 5"):
        BACKENDS.find("trt-rtx")[0].create("")
