"""The backends, on the real runtimes: values, types, shapes, and what they state of narrowing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from backend_models import F32, GPU_BACKENDS, ON_GPU, exact, run, start, start_to_run, unary
from onnx import TensorProto, helper
from onnx_texts import onnx_model

from harness.core.torch_arrays import to_numpy, to_torch
from harness.run.backend import BACKENDS, Backend, ShapeRange, UnsupportedModel

RUNNERS = [
    *("ort-cpu", "ort-web", "onnx-reference", "openvino", "tract", "iree", "tvm", "onnx-api:onnxruntime.backend"),
    *ON_GPU,
]


@pytest.fixture(scope="module", params=RUNNERS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return start_to_run(request.param)


@pytest.fixture(scope="module")
def ort() -> Backend:
    return start("ort-cpu")


def test_a_backend_has_the_version_and_device_of_its_entry(backend: Backend) -> None:
    entry, argument = BACKENDS.find(backend.name)
    assert backend.version == entry.version(argument)
    assert backend.version[0].isdigit()
    assert backend.device == ("cuda" if backend.name in GPU_BACKENDS else "cpu")


def test_outputs_come_in_graph_order(backend: Backend) -> None:
    nodes = "a = Neg (x) b = Add (x, w) c = Shape (w)"
    model = onnx_model("float[2] w, float[2] x", "int64[1] c, float[2] b, float[2] a", nodes, opset=18)
    x, w = np.array([1, -2], np.float32), np.array([10, 20], np.float32)
    c, b, a = run(backend, model, x=x, w=w)
    exact(c, np.array([2], np.int64))
    exact(b, x + w)
    exact(a, -x)


def test_unused_inputs_initialisers_and_constants_are_taken(backend: Backend) -> None:
    nodes, k = "y = Add (x, k) z = Identity (k)", np.array([1.0, 2.0], np.float32)
    model = onnx_model("float[2] x, float[3] unused", "float[2] y, float[2] z", nodes, opset=18, k=k)
    y, z = run(backend, model, x=np.ones(2, np.float32), unused=np.zeros(3, np.float32))
    exact(y, np.array([2, 3], np.float32))
    exact(z, np.array([1, 2], np.float32))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 1), (1, 1, 1, 1, 1)])
def test_scalars_and_empty_tensors_keep_their_shapes(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.full(shape, -1.5, np.float32)
    (y,) = run(backend, unary("Neg", F32, shape), x=x)
    exact(y, -x)


def test_a_session_takes_sizes_within_its_ranges(backend: Backend) -> None:
    session = backend.load(unary("Neg", F32, ["n", 3]), {"x": ShapeRange(min=(0, 3), opt=(2, 3), max=(5, 3))})
    for rows in (2, 5, 0, 1):
        x = np.arange(1, 1 + rows * 3, dtype=np.float32).reshape(rows, 3)
        (y,) = session.run({"x": x})
        exact(y, -x)


def test_output_shape_that_depends_on_data(backend: Backend) -> None:
    model = onnx_model("float[4] x", "int64[1,n] y", "y = NonZero (x)", opset=18)
    session = backend.load(model, None)
    (some,) = session.run({"x": np.array([0, 1, 0, 2], np.float32)})
    exact(some, np.array([[1, 3]], np.int64))
    (none,) = session.run({"x": np.zeros(4, np.float32)})
    exact(none, np.zeros((1, 0), np.int64))


def test_outputs_do_not_alias_the_next_run(backend: Backend) -> None:
    session = backend.load(unary("Neg", F32, [2]), None)
    (first,) = session.run({"x": np.array([1, 2], np.float32)})
    session.run({"x": np.array([7, 8], np.float32)})
    exact(first, np.array([-1, -2], np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_dtypes_pass_through(backend: Backend, dtype: str) -> None:
    if backend.narrows(dtype):
        pytest.skip(f"{backend.name} computes it in {backend.narrows(dtype)}")
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.array([[0, 1, 1], [1, 0, 3]]).astype(dtype)
    exact(run(backend, unary("Identity", element, [2, 3]), x=x)[0], x)


@pytest.mark.parametrize("name", ["ort-cpu", "onnx-reference", "openvino", *ON_GPU])
@pytest.mark.parametrize("shape", [(65536,), (256, 256), (0, 3), ()])
def test_bfloat16_round_trip_is_bit_exact(name: str, shape: tuple[int, ...]) -> None:
    every = np.arange(65536, dtype=np.uint16)
    count = int(np.prod(shape))
    x = every[16256 : 16256 + count] if count < 65536 else every
    x = x.reshape(shape).view(ml_dtypes.bfloat16)
    model = unary("Identity", TensorProto.BFLOAT16, shape)
    (y,) = run(start_to_run(name), model, x=x)
    if name == "openvino" and count == 65536:
        quiet = ~np.isnan(x.astype(np.float32))
        exact(y[quiet], x[quiet])
    else:
        exact(y, x)


def test_ort_draws_the_same_numbers_of_a_model_that_is_loaded_again(ort: Backend) -> None:
    model = onnx_model("float[8] x", "float[8] y", "y = RandomNormalLike (x)", opset=18)
    zeros = np.zeros(8, np.float32)
    session = ort.load(model, None)
    (first,), (second,) = session.run({"x": zeros}), session.run({"x": zeros})
    assert (first != second).all()
    exact(run(ort, model, x=zeros)[0], first)


def test_ort_takes_bfloat16_with_other_dtypes(ort: Backend) -> None:
    nodes = "y = Cast <to = 16> (x) z = Cast <to = 1> (h) c = Not (b)"
    outputs = "bool[1] c, bfloat16[3] y, float[2] z"
    model = onnx_model("float[3] x, bfloat16[2] h, bool[1] b", outputs, nodes, opset=18)
    x = np.array([1.1, -0.0, 3e38], np.float32)
    h = np.array([0.1, -2], ml_dtypes.bfloat16)
    c, y, z = run(ort, model, x=x, h=h, b=np.array([True]))
    exact(c, np.array([False]))
    exact(y, x.astype(ml_dtypes.bfloat16))
    exact(z, h.astype(np.float32))
    y[0] = 0  # owned and writable, not a view of the runtime's memory


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_ort_float8_round_trip_is_bit_exact(ort: Backend, dtype: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(np.dtype(dtype))
    model = unary("Identity", helper.np_dtype_to_tensor_dtype(x.dtype), [256])
    model.opset_import[0].version = 19
    exact(run(ort, model, x=x)[0], x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3,), (0, 2), ()])
def test_arrays_survive_the_way_through_torch(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 1.5).astype(dtype)
    exact(to_numpy(to_torch(x)), x)


# --- narrowing: what a backend states is what it does ----------------------------------------------

#: Values that tell a dtype from a narrower one when one is added.
WIDE = {
    "float64": [0.1, 1e300],
    "float32": [0.1, 1e38],
    "float16": [0.1, 6e4],
    "int64": [2**40, -(2**62)],
    "int32": [2**30, -(2**31)],
    "int16": [2**14, -(2**15)],
    "int8": [2**6, -(2**7)],
    "uint8": [2**7, 200],
    "uint16": [2**15, 60000],
    "uint32": [2**31, 4 * 10**9],
    "uint64": [2**63, 2**40],
}


@pytest.mark.parametrize("dtype", WIDE)
def test_statements_about_narrowing_are_true(backend: Backend, dtype: str) -> None:
    kind = {"float64": "double", "float32": "float"}.get(dtype, dtype)
    nodes = "y = Add (x, one) g = Greater (x, one)"
    model = onnx_model(f"{kind}[2] x, {kind}[2] one", f"{kind}[2] y, bool[2] g", nodes, opset=18)
    x, one = np.array(WIDE[dtype], dtype), np.ones(2, dtype)
    try:
        y, greater = run(backend, model, x=x, one=one)
    except UnsupportedModel:
        assert backend.narrows(dtype) is None
        return
    kept = np.array_equal(y, x + one) and np.array_equal(greater, x > one)
    assert kept == (backend.narrows(dtype) is None)


def test_an_input_of_openvino_that_becomes_an_output_is_fed() -> None:
    # In OpenVINO's model the tensor bears the output's name alone.
    pytest.importorskip("openvino")
    nodes = "s = SequenceConstruct (x) i = Constant <value = int64 {0}> () y = SequenceAt (s, i)"
    model = onnx_model("bool[2,64] x", "bool[2,64] y", nodes, ir=9)
    entry, argument = BACKENDS.find("openvino")
    session = entry.create(argument).load(model, None)
    for x in (np.ones((2, 64), bool), np.zeros((2, 64), bool)):
        np.testing.assert_array_equal(session.run({"x": x})[0], x)
