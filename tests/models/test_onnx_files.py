"""`conformance check FILE.onnx`: the right answer for files of earlier opsets, invalid files, and odd inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import checked, typed
from onnx import helper, numpy_helper, parser


def saved(path: Path, text: str, **weights: Any) -> Path:
    """Save a model in ONNX's text form, with `weights` as initializers."""
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items())
    onnx.save(model, path)
    return path


def refusal(path: Path, *options: str | Path) -> str:
    """Return what is said of a request that cannot be met, which is one line."""
    done = typed("check", path, *options, status=2)
    return done.output.split("Error: ")[1].strip()


def graph(node: str, opset: int, shape: str = "2,3,4", result: str = "", ir: int = 7) -> str:
    """Return the text of a graph of one node that computes y from x."""
    header = f'<ir_version: {ir}, opset_import: ["": {opset}]>'
    return f"{header} g (float[{shape}] x) => (float[{result or shape}] y) {{ {node} }}"


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_before_opset_13_an_operator_works_on_all_axes_from_its_own_on(operator: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "flat.onnx", graph(f"y = {operator} <axis = 1> (x)", 11))
    (way,) = checked(path)["ways"]
    assert way["nodes"] == {"nodes": 1, "judged": 1, "wrong": 0, "unjudged": []}


def test_a_runtime_that_has_the_newest_rule_only_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = saved(tmp_path / "flat.onnx", graph("y = Softmax <axis = 1> (x)", 12))
    answer = checked(path, "--backend", "ort-cpu", "--backend", "openvino", status=1)
    assert [way["survives"] for way in answer["ways"]] == [True, False]
    assert (answer["ways"][1]["cause"]["component"], answer["ways"][1]["cause"]["rule"]) == ("openvino", "wrong-node")


def test_a_number_that_a_runtime_narrows_is_a_failure_if_it_does_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    text = '<ir_version: 8, opset_import: ["": 17]> g (int64[2] x, int64[2] e) => (int64[2] y) { y = Pow (x, e) }'
    path, given = saved(tmp_path / "power.onnx", text), tmp_path / "power.npz"
    for numbers, survives in (([2, 3], True), ([2**20, 3_000_000_000], False)):
        np.savez(given, x=np.array(numbers), e=np.array([3, 2]))
        (way,) = checked(path, "--inputs", given, "--backend", "openvino", status=int(not survives))["ways"]
        assert way["survives"] is survives
        assert way["owner"] == ("" if survives else "backend")
    assert [(run["stage"], run["outcome"]) for run in way["runs"]] == [("compare", "narrowed")]


def test_a_cubic_window_may_be_padded_pixel_by_pixel(tmp_path: Path) -> None:
    attributes = 'mode="cubic", padding_mode="border", align_corners=0'
    header = '<ir_version: 9, opset_import: ["": 20]> g (float[1,1,4,4] x, float[1,1,4,2] p) => (float[1,1,1,4] y)'
    path = saved(tmp_path / "sampled.onnx", f"{header} {{ y = GridSample <{attributes}> (x, p) }}")
    given = tmp_path / "sampled.npz"
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) ** 2
    places = np.array([[[[-1.3, -1.2], [1.4, -1.2], [-1.35, 1.3], [1.2, 1.25]]]], np.float32)
    np.savez(given, x=image, p=places)
    (way,) = checked(path, "--inputs", given, status=1)["ways"]
    assert (way["owner"], way["cause"]["rule"], way["cause"]["place"]) == ("", "left-open", "GridSample")
    # Within the image both readings are one.
    np.savez(given, x=image, p=places / 2)
    checked(path, "--inputs", given)


def test_a_result_that_a_text_leaves_open_quotes_it(tmp_path: Path) -> None:
    header = '<ir_version: 8, opset_import: ["": 17]> g (float[1,1,6] x) => (float[1,1,5] y)'
    path = saved(tmp_path / "pooled.onnx", f"{header} {{ y = MaxPool <kernel_shape = [2]> (x) }}")
    given = tmp_path / "pooled.npz"
    np.savez(given, x=np.array([[[1, np.nan, 2, np.nan, np.nan, 3]]], np.float32))
    answer = checked(path, "--inputs", given, status=1)
    screen = typed("check", path, "--inputs", given, status=1).stdout
    (way,) = answer["ways"]
    assert way["cause"]["rule"] == "left-open"
    assert way["cause"]["evidence"][:60] in " ".join(screen.split())


#: A node of an earlier opset, and its weights.
EARLIER: dict[str, tuple[str, dict[str, Any]]] = {
    "batch-norm-7": (
        graph("y = BatchNormalization (x, s, b, m, v)", 7),
        {name: np.array([1, 2, 3], np.float32) for name in "sbmv"},
    ),
    "batch-norm-9": (
        graph("y = BatchNormalization (x, s, b, m, v)", 9),
        {name: np.array([1, 2, 3], np.float32) for name in "sbmv"},
    ),
    "dropout-10": (graph("y = Dropout (x)", 10), {}),
    "upsample-9": (
        graph('y = Upsample <mode = "nearest"> (x, s)', 9, "1,1,2,2", "1,1,4,4"),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize-10": (
        graph('y = Resize <mode = "nearest"> (x, s)', 10, "1,1,2,2", "1,1,4,6"),
        {"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "dequantize-13": (
        graph("q = QuantizeLinear (x, s, z) y = DequantizeLinear <axis = 1> (q, s, z)", 13),
        {"s": np.array([0.1, 0.2, 0.3], np.float32), "z": np.array([1, 2, 3], np.uint8)},
    ),
    "scatter-9": (
        graph("y = Scatter <axis = 1> (x, i, u)", 9, "2,3"),
        {"i": np.array([[1], [2]]), "u": np.array([[5], [6]], np.float32)},
    ),
    "roi-align-10": (
        graph("y = RoiAlign <output_height = 2, output_width = 2> (x, r, i)", 10, "1,2,6,6", "1,2,2,2"),
        {"r": np.array([[0, 0, 4, 4]], np.float32), "i": np.array([0])},
    ),
    "grid-sample-16": (
        graph('y = GridSample <mode = "bicubic"> (x, g)', 16, "1,1,4,4", "1,1,2,2", 8),
        {"g": np.random.default_rng(1).uniform(-1, 1, (1, 2, 2, 2)).astype(np.float32)},
    ),
    # onnx's evaluator has sums for as many channels as there are batches.
    "lrn-13": (graph("y = LRN <size = 3, alpha = 1.0> (x)", 13, "1,5,2,2"), {}),
}


@pytest.mark.parametrize("name", EARLIER)
def test_a_node_is_judged_by_the_definition_of_its_version(name: str, tmp_path: Path) -> None:
    text, weights = EARLIER[name]
    (way,) = checked(saved(tmp_path / "earlier.onnx", text, **weights))["ways"]
    nodes = way["nodes"]
    assert (nodes["judged"], nodes["wrong"], nodes["unjudged"]) == (nodes["nodes"], 0, [])


@pytest.mark.parametrize(
    ("text", "weights", "operator"),
    [
        # The text of opset 10 says nothing about coordinates.
        (
            graph('y = Resize <mode = "linear"> (x, s)', 10, "1,1,2,2", "1,1,4,4"),
            {"s": np.array([1, 1, 2, 2], np.float32)},
            "Resize",
        ),
        (
            graph("y = BatchNormalization <spatial = 0> (x, s, s, s, s)", 7, "2,3,4"),
            {"s": np.ones((3, 4), np.float32)},
            "BatchNormalization",
        ),
    ],
)
def test_a_node_without_an_evaluator_of_its_version_is_not_judged(
    text: str, weights: dict[str, Any], operator: str, tmp_path: Path
) -> None:
    (way,) = checked(saved(tmp_path / "earlier.onnx", text, **weights))["ways"]
    (node,) = way["nodes"]["unjudged"]
    assert (node["operator"], node["why"], way["nodes"]["wrong"]) == (operator, "another-version", 0)


def test_nodes_that_onnx_runtime_adds_are_judged_by_their_own_definitions(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2,4] x) => (float[2,4] y) {'
        " a = com.microsoft.QuickGelu <alpha = 1.5> (x) b = com.microsoft.FastGelu (a, w)"
        " c = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (b, m) d = com.microsoft.BiasGelu (c, w)"
        " e = com.microsoft.SkipLayerNormalization (d, x, w, w) f = SimplifiedLayerNormalization (e, w)"
        ' y = com.microsoft.FusedGemm <activation = "Relu"> (f, m, w) }'
    )
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=4).astype(np.float32), "m": random.normal(size=(4, 4)).astype(np.float32)}
    (way,) = checked(saved(tmp_path / "contrib.onnx", text, **weights))["ways"]
    assert way["nodes"] == {"nodes": 7, "judged": 7, "wrong": 0, "unjudged": []}


def test_int4_weights_are_judged_unless_the_node_lets_a_runtime_round_its_input(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        "b": random.integers(0, 256, (8, 2, 8)).astype(np.uint8),
        "s": random.uniform(0.1, 1, 16).astype(np.float32),
        "z": random.integers(0, 256, 8).astype(np.uint8),
    }
    answers = {}
    for level in (0, 4):
        text = (
            '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2,32] x) => (float[2,8] y) {'
            f" y = com.microsoft.MatMulNBits <K = 32, N = 8, bits = 4, block_size = 16, accuracy_level = {level}>"
            " (x, b, s, z) }"
        )
        (way,) = checked(saved(tmp_path / f"int4_{level}.onnx", text, **weights))["ways"]
        answers[level] = way["nodes"]
    assert answers[0] == {"nodes": 1, "judged": 1, "wrong": 0, "unjudged": []}
    (node,) = answers[4]["unjudged"]
    assert (node["operator"], node["why"]) == ("com.microsoft.MatMulNBits", "no-definition")


#: An invalid node that the checker takes, and the sentence that it breaks.
INVALID: dict[str, tuple[str, dict[str, Any], str]] = {
    "gemm": (
        graph("y = Gemm (x, w, c)", 17, "2,4", "2,3", 8),
        {"w": np.ones((4, 3), np.float32), "c": np.ones((1, 1, 3), np.float32)},
        "The shape of C should be unidirectional broadcastable to (M, N).",
    ),
    "group-normalization-21": (
        graph("y = GroupNormalization <num_groups = 2> (x, s, s)", 21, "1,4,3", ir=10),
        {"s": np.ones(2, np.float32)},
        "Scale tensor of shape `(C)`.",
    ),
    "instance-normalization": (
        graph("y = InstanceNormalization (x, s, s)", 17, "1,4,3", ir=8),
        {"s": np.ones(2, np.float32)},
        "The input 1-dimensional scale tensor of size C.",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_node_that_breaks_its_operators_text_is_the_files_fault(name: str, tmp_path: Path) -> None:
    text, weights, quote = INVALID[name]
    (way,) = checked(saved(tmp_path / "invalid.onnx", text, **weights), status=1)["ways"]
    assert (way["cause"]["component"], way["cause"]["rule"]) == ("file", "invalid-node")
    assert way["cause"]["node"]["quote"] == quote


def test_unsorted_nodes_are_sorted_and_noted(tmp_path: Path) -> None:
    answer = checked(saved(tmp_path / "unsorted.onnx", graph("y = Relu (a) a = Neg (x)", 17, "2", ir=8)))
    assert answer["survives"]
    assert "not topologically sorted" in answer["notes"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (graph("y = Add (x, z)", 17, "2", ir=8), "Add reads 'z', which nothing gives"),
        (graph("z = Neg (x)", 17, "2", ir=8), "nothing gives its output 'y'"),
        (graph("a = Add (x, b) b = Neg (a) y = Neg (a)", 17, "2", ir=8), "its nodes form a circle"),
    ],
)
def test_a_graph_that_cannot_be_run_is_refused_in_a_line(text: str, words: str, tmp_path: Path) -> None:
    assert words in refusal(saved(tmp_path / "broken.onnx", text))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((2, 5), np.float32)}, "x must be [N, 4], {file} has [2, 5]"),
        ({"x": np.zeros(4, np.float32)}, "x must be [N, 4], {file} has [4]"),
        ({"x": np.zeros((2, 4))}, "x must be float32, {file} has float64"),
        ({"y": np.zeros(3)}, "--inputs {file} has no 'x'; the model takes x"),
        (
            {"x": np.zeros((2, 4), np.float32), "z": np.zeros(3)},
            "--inputs {file} has 'z', which the model does not take; it takes x",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_a_line(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "relu.onnx", graph("y = Relu (x)", 17, "N,4", ir=8))
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, **arrays)
    assert refusal(path, "--inputs", inputs) == words.format(file=inputs)


def test_missing_weights_name_the_file_to_put_beside_the_model(tmp_path: Path) -> None:
    model = parser.parse_model(graph("y = Add (x, w)", 17, "512", ir=8))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(512, np.float32), "w"))
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert f"put weights.bin into {tmp_path}" in refusal(path)


def test_a_file_may_be_off_by_the_last_step_of_its_quantisation(tmp_path: Path) -> None:
    # The fused kernel multiplies integers, the plain one floats: a number between two steps goes either way.
    random = np.random.default_rng(3)
    text = (
        '<ir_version: 7, opset_import: ["": 13]> g (float[8,64] x) => (float[8,32] y) {'
        " xq = QuantizeLinear (x, xs, z) xd = DequantizeLinear (xq, xs, z) wd = DequantizeLinear (w, ws, wz)"
        " m = MatMul (xd, wd) mq = QuantizeLinear (m, ms, z) y = DequantizeLinear (mq, ms, z) }"
    )
    weights = {
        "w": random.integers(-63, 64, (64, 32)).astype(np.int8),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "xs": np.float32(0.03),
        "z": np.uint8(128),
        "ms": np.float32(0.05),
    }
    path = saved(tmp_path / "qdq.onnx", text, **weights)
    assert checked(path)["survives"]


def test_an_operator_that_nothing_defines_is_named(tmp_path: Path) -> None:
    model = parser.parse_model(graph("y = Relu (x)", 17, "2", ir=8))
    model.graph.node[0].CopyFrom(helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft"))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [2, 2]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2, 2]))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "inverse.onnx")
    (way,) = checked(tmp_path / "inverse.onnx")["ways"]
    (node,) = way["nodes"]["unjudged"]
    assert (node["operator"], node["why"]) == ("com.microsoft.Inverse", "no-definition")
