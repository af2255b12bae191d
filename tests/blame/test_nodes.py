"""A graph node by node: its steps, what definitions give, and where onnx's evaluator is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx_texts import onnx_model

from harness.core.dtypes import Array
from harness.pipeline.nodes.definition import Definition, Undefined
from harness.pipeline.nodes.formulas import ELEMENTWISE, FORMULAS
from harness.pipeline.nodes.judged_nodes import not_as_defined, overflown, right_results
from harness.pipeline.nodes.node_steps import SteppedGraph, split_steps
from harness.pipeline.nodes.preconditions import broken_precondition
from harness.pipeline.nodes.walk import walk
from harness.run.backend import BACKENDS, Backend


def start(name: str) -> Backend:
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)


EVALUATOR = start("onnx-reference")
ORT = start("ort-cpu")


def graph_of(
    nodes: str | onnx.NodeProto, feeds: dict[str, Array], outputs: list[str], opset: int | None = None
) -> SteppedGraph:
    model = onnx_model("", "", nodes if isinstance(nodes, str) else "", opset=opset or 20)
    if isinstance(nodes, onnx.NodeProto):
        model.graph.node.append(nodes)
    model.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    )
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return split_steps(model)


def defined(operator: str, *inputs: Any, outputs: int = 1, opset: int | None = None, **attributes: Any) -> Definition:
    """The definition of one node; None for an input that is left out."""
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    graph = graph_of(helper.make_node(operator, names, made, **attributes), feeds, made, opset)
    return Definition(graph, graph.steps[0], feeds, EVALUATOR)


def run_evaluator(definition: Definition) -> list[Array]:
    return list(EVALUATOR.load(definition.model, None).run(definition.fed))


F32 = np.float32
X = np.random.default_rng(1).normal(size=(1, 2, 3, 3, 4)).astype(F32)


def pooled() -> list[Array]:
    largest, where = torch.nn.functional.max_pool3d(torch.from_numpy(X), 2, 1, return_indices=True)
    # PyTorch counts from the beginning of each channel.
    return [largest.numpy(), where.numpy() + np.array([0, 36]).reshape(1, 2, 1, 1, 1)]


def _gated(number: float) -> float:
    """Return the first result of an LSTM whose gates all get a number."""
    gate = 1 / (1 + np.exp(-number))
    return float(gate * np.tanh(gate * np.tanh(number)))


def _backward_scan() -> Definition:
    body = onnx.parser.parse_graph(
        "body (double c, double x) => (double d, double z) { d = Add(c, x) z = Identity(d) }"
    )
    return defined(
        "Scan", np.array(0.0), np.array([1.0, 2.0]), outputs=2, body=body, num_scan_inputs=1, scan_input_directions=[1]
    )


#: A node on which the evaluator departs from the text, and what the text says.
DEPARTURES: dict[str, tuple[Callable[[], Definition], Callable[[], list[Array]]]] = {
    "Erf": (
        lambda: defined("Erf", np.array([0.1, 1.0, 2.5])),
        lambda: [torch.erf(torch.tensor([0.1, 1.0, 2.5], dtype=torch.float64)).numpy()],
    ),
    "Gelu": (
        lambda: defined("Gelu", np.array([-4.0])),
        lambda: [np.array([-4.0 * 3.167124183311992e-05])],
    ),
    # The default bound is the largest finite number.
    "Clip": (
        lambda: defined("Clip", np.array([np.inf], F32), np.array(0.0, F32)),
        lambda: [np.array([np.finfo(F32).max])],
    ),
    # Indices of fewer rows than the data has.
    "GatherElements": (
        lambda: defined("GatherElements", np.array([[1.0, 2.0], [3.0, 4.0]], F32), np.array([[-1, 0, 1]]), axis=1),
        lambda: [np.array([[2.0, 1.0, 2.0]], F32)],
    ),
    # A dilated kernel meets every second element: no infinity in between.
    "Conv": (
        lambda: defined("Conv", np.array([[[1.0, np.inf, 3.0]]]), np.array([[[2.0, 4.0]]]), None, dilations=[2]),
        lambda: [np.array([[[14.0]]])],
    ),
    "LogSoftmax": (
        lambda: defined("LogSoftmax", np.array([0.0, -2000.0])),
        lambda: [np.array([0.0, -2000.0])],
    ),
    "CumSum": (
        lambda: defined("CumSum", np.array([1.0, 2.0], F32), np.array([0], np.int64)),
        lambda: [np.array([1.0, 3.0], F32)],
    ),
    # The evaluator has sums for as many channels as there are batches.
    "LRN": (
        lambda: defined("LRN", np.array([1.0, 2.0]).reshape(1, 2, 1, 1), size=1, alpha=1.0, beta=1.0, bias=0.0),
        lambda: [np.array([1.0, 0.5]).reshape(1, 2, 1, 1)],
    ),
    # Indices count through all channels.
    "MaxPool": (
        lambda: defined("MaxPool", X, outputs=2, kernel_shape=[2, 2, 2]),
        pooled,
    ),
    "Pad": (
        lambda: defined("Pad", np.array([1.0, 2.0, 3.0], F32), np.array([-1, 1], np.int64)),
        lambda: [np.array([2.0, 3.0, 0.0], F32)],
    ),
    "ReduceLogSumExp": (
        lambda: defined("ReduceLogSumExp", np.array([[3, 3]]), np.array([1], np.int64)),
        lambda: [np.array([[3]])],
    ),
    # NaN is no padding.
    "AveragePool": (
        lambda: defined("AveragePool", np.array([[[np.nan, 1.0, 3.0]]], F32), kernel_shape=[2]),
        lambda: [np.array([[[np.nan, 2.0]]], F32)],
    ),
    "LpPool": (
        lambda: defined("LpPool", np.array([[[np.nan, 3.0, 4.0]]], F32), kernel_shape=[2]),
        lambda: [np.array([[[np.nan, 5.0]]], F32)],
    ),
    # All spatial dimensions are pooled.
    "GlobalMaxPool": (
        lambda: defined("GlobalMaxPool", np.arange(8, dtype=F32).reshape(1, 1, 2, 2, 2)),
        lambda: [np.full((1, 1, 1, 1, 1), 7.0, F32)],
    ),
    "GlobalLpPool": (
        lambda: defined("GlobalLpPool", np.array([[[3.0, -4.0]]], F32)),
        lambda: [np.array([[[5.0]]], F32)],
    ),
    # The evaluator neither clips nor knows where a sequence ends.
    "RNN": (
        lambda: defined("RNN", np.full((1, 1, 1), 4.0), *np.ones((2, 1, 1, 1)), clip=0.5, hidden_size=1),
        lambda: [np.tanh(np.full((1, 1, 1, 1), 0.5))],
    ),
    "GRU": (
        lambda: defined(
            "GRU",
            np.ones((2, 1, 1)),
            np.zeros((1, 3, 1)),
            np.zeros((1, 3, 1)),
            None,
            np.zeros(1, np.int32),
            np.ones((1, 1, 1)),
            outputs=2,
            hidden_size=1,
        ),
        lambda: [np.zeros((2, 1, 1, 1)), np.ones((1, 1, 1))],
    ),
    "LSTM": (
        lambda: defined(
            *("LSTM", np.array([2.0]).reshape(1, 1, 1), np.ones((1, 4, 1)), np.zeros((1, 4, 1))),
            hidden_size=1,
            clip=1.0,
        ),
        lambda: [np.array(_gated(1.0)).reshape(1, 1, 1, 1)],
    ),
    # Infinities saturate.
    "QuantizeLinear": (
        lambda: defined("QuantizeLinear", np.array([np.inf, 2.5], F32), np.array(1.0, F32), np.array(0, np.int8)),
        lambda: [np.array([127, 2], np.int8)],
    ),
    # The zero point is added to what has been rounded: 0.5 is rounded to 0.
    "QLinearMatMul": (
        lambda: defined(
            "QLinearMatMul",
            np.array([[1]], np.uint8),
            np.array(1.0, F32),
            np.array(0, np.uint8),
            np.array([[1]], np.uint8),
            np.array(1.0, F32),
            np.array(0, np.uint8),
            np.array(2.0, F32),
            np.array(7, np.uint8),
        ),
        lambda: [np.array([[7]], np.uint8)],
    ),
    "LpNormalization": (
        lambda: defined("LpNormalization", np.array([3.0, -1.0], F32), p=1),
        lambda: [np.array([0.75, -0.25], F32)],
    ),
    # The values are chosen, and not computed from their difference.
    "OneHot": (
        lambda: defined("OneHot", np.array([0]), np.array(2), np.array([1e8, 1.0], F32)),
        lambda: [np.array([[1.0, 1e8]], F32)],
    ),
    # The scores are asked for before they are capped.
    "Attention": (
        lambda: defined(
            *("Attention", *np.full((3, 1, 1, 1, 1), 3.0), None),
            opset=24,
            outputs=4,
            scale=1.0,
            softcap=1.0,
            qk_matmul_output_mode=0,
        ),
        lambda: [np.full((1, 1, 1, 1), number) for number in (3.0, 3.0, 3.0, 9.0)],
    ),
    "Mean": (
        lambda: defined("Mean", np.array([1.0], F32), np.array([[1.0], [3.0]], F32)),
        lambda: [np.array([[1.0], [2.0]], F32)],
    ),
    "ReduceLogSum": (
        lambda: defined("ReduceLogSum", np.array([[3, 4]]), np.array([1], np.int64)),
        lambda: [np.array([[1]])],
    ),
    "Squeeze": (
        lambda: defined("Squeeze", np.ones((1, 2, 1), F32), axes=[-3, -1], opset=11),
        lambda: [np.ones(2, F32)],
    ),
    "Unsqueeze": (
        lambda: defined("Unsqueeze", np.ones((2,), F32), axes=[2, 0], opset=11),
        lambda: [np.ones((1, 2, 1), F32)],
    ),
    # In the order in which they come first.
    "Unique": (
        lambda: defined("Unique", np.array([[2.0, 1.0, 2.0]], F32), axis=1, sorted=0),
        lambda: [np.array([[2.0, 1.0]], F32)],
    ),
    # Without a number of boxes there are none.
    "NonMaxSuppression": (
        lambda: defined("NonMaxSuppression", np.zeros((1, 1, 4), F32), np.ones((1, 1, 1), F32)),
        lambda: [np.zeros((0, 3), np.int64)],
    ),
    "Scan": (_backward_scan, lambda: [np.array(3.0), np.array([2.0, 3.0])]),
}


@pytest.mark.parametrize("operator", sorted(DEPARTURES))
def test_where_the_evaluator_departs_from_the_text_a_formula_does_not(operator: str) -> None:
    make, expected = DEPARTURES[operator]
    definition = make()
    assert operator in FORMULAS
    for found, right in zip(right_results(definition), expected(), strict=True):
        assert found.dtype == right.dtype
        np.testing.assert_allclose(found, right, rtol=1e-14 if right.dtype == np.float64 else 1e-6)
    try:
        theirs = run_evaluator(definition)
    except Exception:
        return
    assert not all(np.allclose(a, b, rtol=1e-14, atol=0) for a, b in zip(theirs, expected(), strict=True))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
def test_a_convolution_is_as_onnx_runtime_has_it(auto_pad: str) -> None:
    numbers = np.random.default_rng(1)
    x, weight, bias = (numbers.normal(size=s).astype(F32) for s in ((2, 4, 7, 6), (6, 2, 2, 3), (6,)))
    padded = {"pads": [1, 0, 2, 1], "dilations": [2, 1]} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    definition = defined("Conv", x, weight, bias, group=2, strides=[2, 1], **padded)
    (ours,) = right_results(definition)
    (theirs,) = ORT.load(definition.model, None).run(definition.fed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_factor_of_zero_makes_nan_of_an_infinity_in_a_product_of_matrices() -> None:
    one, odd = np.ones((1, 1), F32), np.array([[np.inf]], F32)
    (found,) = right_results(defined("Gemm", one, one, odd, beta=0.0))
    assert np.isnan(found).all()
    (found,) = right_results(defined("Gemm", one, one, odd, beta=0.5))
    assert np.isposinf(found).all()


def test_a_nearest_neighbour_keeps_the_sign_of_its_zero() -> None:
    definition = defined(
        *("Resize", np.array([[[-0.0, 1.0]]], F32), None, np.array([1, 1, 2], F32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    assert definition.is_exact
    assert definition.is_copy


def test_updates_of_another_shape_than_the_indices_have_no_definition() -> None:
    data, indices = np.zeros((3, 3), F32), np.zeros((1, 2), np.int64)
    definition = defined("ScatterElements", data, indices, np.ones((2, 3), F32))
    with pytest.raises(Undefined, match="shapes of indices and updates differ"):
        _ = definition.own


def test_every_formula_has_a_departure_that_it_mends() -> None:
    # A padded transposed convolution is in `test_testimony`.
    # Strings are not compared by numbers: `test_a_word_list_removes_nothing_but_its_words`.
    assert set(FORMULAS) == {*DEPARTURES, *ELEMENTWISE, "ScatterElements", "ConvTranspose", "StringNormalizer"}


def test_a_word_list_removes_nothing_but_its_words() -> None:
    definition = defined("StringNormalizer", np.array(["a", "", "b"], object), stopwords=["a"], is_case_sensitive=1)
    assert definition.own[0].tolist() == ["", "b"]
    assert run_evaluator(definition)[0].tolist() == ["b"]


#: Of 0.75, by mpmath with 30 digits.
EXACTLY = {
    "Cos": "0.7316888688738208863118388",
    "Exp": "2.11700001661267466854537",
    "HardSwish": "0.46875",
    "Log": "-0.287682072451780927439219",
    "Reciprocal": "1.333333333333333333333333",
    "Sigmoid": "0.6791786991753929731596801",
    "Sin": "0.681638760023334166733242",
    "Softplus": "1.13687100611489994366984",
    "Sqrt": "0.8660254037844386467637232",
    "Tanh": "0.6351489523872873192144344",
}


@pytest.mark.parametrize("operator", sorted(ELEMENTWISE.keys() - {"Gemm", "MatMul", "PRelu", "Pow"}))
def test_a_definition_is_exact_to_the_last_digits(operator: str) -> None:
    exact = np.longdouble(EXACTLY[operator])
    (found,) = defined(operator, np.array([0.75])).truth or ()
    assert found is not None
    assert found.dtype == np.longdouble
    assert abs(found[0] - exact) <= 4 * np.finfo(np.longdouble).eps * abs(exact)
    (narrow,) = right_results(defined(operator, np.array([0.75], F32)))
    assert narrow[0] == F32(exact)


def test_sigmoid_keeps_subnormals_that_a_runtime_loses() -> None:
    (found,) = right_results(defined("Sigmoid", np.array([-742.2027])))
    assert found[0] == 4.4e-323


def test_integers_are_multiplied_in_their_own_dtype_and_a_slope_leaves_zero_alone() -> None:
    a, b = np.array([[2**62, 3]]), np.array([[2], [5]])
    assert right_results(defined("MatMul", a, b))[0] == [[-(2**63) + 15]]
    assert right_results(defined("Gemm", a, b.T, np.array([1]), transB=1))[0] == [[-(2**63) + 16]]
    slope = np.array([np.inf, 2.0], F32)
    assert right_results(defined("PRelu", np.array([0.0, -1.0], F32), slope))[0].tolist() == [0.0, -2.0]


def test_an_integer_to_a_power_is_exact_and_a_fraction_is_cut() -> None:
    base, power = np.array([3, -3, 2, -1, -1, 5]), np.array([37, 33, -1, -3, -2, 0])
    (found,) = right_results(defined("Pow", base, power))
    assert found.tolist() == [3**37, (-3) ** 33, 0, -1, 1, 1]
    # A float64 has 53 bits.
    rounded = np.float64(3.0) ** np.array([37.0])
    wrong = not_as_defined(defined("Pow", base[:1], power[:1]), [rounded.astype(np.int64)])
    assert wrong is not None
    assert wrong[0].tolist() == [True]
    with pytest.raises(Undefined):
        _ = defined("Pow", np.array([0]), np.array([-1])).own


def test_a_result_without_elements_is_defined_whatever_the_evaluator_does() -> None:
    feeds = {"x": np.zeros((2, 2, 3))}
    graph = graph_of("size = Constant <value_ints = [2, 1, 0, 3]> () y = AffineGrid (x, size)", feeds, ["y"])
    definition = Definition(graph, graph.steps[0], {**feeds, **graph.constant_values}, EVALUATOR)
    with pytest.raises(ValueError, match="arange"):
        run_evaluator(definition)
    (found,) = right_results(definition)
    assert found.shape == (2, 0, 3, 2)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_the_scatter_of_right_shapes_is_as_onnx_runtime_has_it(reduction: str) -> None:
    data = np.arange(12.0, dtype=F32).reshape(3, 4)
    indices = np.array([[2, 0, 1], [0, 0, -1]], np.int64)
    definition = defined("ScatterElements", data, indices, np.full((2, 3), 2.5, F32), axis=1, reduction=reduction)
    assert not_as_defined(definition, ORT.load(definition.model, None).run(definition.fed)) is None


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integers_divided_by_zero_are_no_valid_node(operator: str) -> None:
    assert broken_precondition(defined(operator, np.array([3]), np.array([0])))["input"] == "B"
    assert not broken_precondition(defined(operator, np.array([3]), np.array([2])))


# What is judged exactly and what closely


def test_a_copy_that_loses_the_sign_of_a_zero_is_wrong() -> None:
    definition = defined("Identity", np.array([-0.0, 1.0], F32))
    (mask,) = not_as_defined(definition, [np.array([0.0, 1.0], F32)]) or ()
    assert mask.tolist() == [True, False]
    # No text tells which of two zeros is larger.
    either = defined("Max", np.array([-0.0], F32), np.array([0.0], F32))
    assert not_as_defined(either, [np.array([-0.0], F32)]) is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_rounding_is_right_and_more_is_wrong(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.array([0.3, -1.7, 4.1]).astype(kind)
    definition = defined("Exp", x)
    (right,) = right_results(definition)
    step = np.nextafter(right.astype(kind), np.array(100.0).astype(kind)).astype(kind)
    assert not_as_defined(definition, [step]) is None
    (mask,) = not_as_defined(definition, [(right.astype(np.float64) * 1.5).astype(kind)]) or ()
    assert mask.all()


def test_a_cast_rounds_once() -> None:
    definition = defined("Cast", np.array([1 / 3], F32), to=TensorProto.FLOAT16)
    (mask,) = not_as_defined(definition, [np.array([0.3335], np.float16)]) or ()
    assert mask.all()


def test_a_wrong_dtype_or_shape_is_wrong_even_without_elements() -> None:
    definition = defined("Transpose", np.zeros((0, 3), F32))
    assert not_as_defined(definition, [np.zeros((3, 0), F32)]) is None
    assert not_as_defined(definition, [np.zeros((0, 3), F32)]) is not None
    assert not_as_defined(definition, [np.zeros((3, 0), np.float64)]) is not None


def test_numbers_drawn_at_random_are_right_in_the_right_form() -> None:
    definition = defined("RandomNormalLike", np.zeros(3, F32), dtype=TensorProto.DOUBLE)
    assert not_as_defined(definition, [np.array([9.0, 9.0, 9.0])]) is None
    assert not_as_defined(definition, [np.zeros(3, F32)]) is not None


# Steps


def test_an_infinite_input_decides_a_sum_unless_finite_terms_overflow_against_it() -> None:
    """inf - 2·(3e38): NaN where the product is rounded before it is added, inf in a fused multiply-add."""
    for finite, may_be_nan in ((-3e38, True), (-3e37, False), (3e38, False)):
        definition = defined("MatMul", np.array([[1.0, 2.0]], F32), np.array([[np.inf], [finite]], F32))
        assert not_as_defined(definition, [np.array([[np.inf]], F32)]) is None
        assert (not_as_defined(definition, [np.array([[np.nan]], F32)]) is None) is may_be_nan


def test_scales_are_no_terms_of_what_is_resized() -> None:
    x = np.array([[[1.0, 2.0, np.inf]]], F32)
    definition = defined("Resize", x, None, np.array([1.0, 1.0, 2.0], F32), mode="linear")
    (right,) = right_results(definition)
    assert not_as_defined(definition, [right]) is None
    nowhere = right.copy()
    nowhere[0, 0, 0] = np.nan
    wrong = not_as_defined(definition, [nowhere])
    assert wrong is not None
    assert np.flatnonzero(wrong[0]).tolist() == [0]


def test_a_sum_may_leave_the_range_where_its_terms_do_and_nowhere_else() -> None:
    most = np.finfo(F32).max
    rows = np.array([[most, most, -most], [1.0, 2.0, -np.inf], [most, 1.0, -1.0]], F32)
    definition = defined("MatMul", rows, np.ones((3, 1), F32))
    (own,) = definition.own
    (found,) = overflown(definition, [own], np.nan)
    assert np.isnan(found[:, 0]).tolist() == [True, False, False]
    np.testing.assert_array_equal(found[1:], own[1:])


def test_nodes_that_pass_on_sequences_are_one_step() -> None:
    x = np.arange(6.0, dtype=F32).reshape(3, 2)
    nodes = """n = Neg (x) s = SplitToSequence <axis = 0, keepdims = 1> (n) a = Abs (x)
        c = ConcatFromSequence <axis = 1> (s) y = Add (c, c)"""
    graph = graph_of(nodes, {"x": x}, ["y", "a"])
    assert [[n.op_type for n in s.nodes] for s in graph.steps] == [
        ["Neg"],
        ["SplitToSequence", "Abs", "ConcatFromSequence"],
        ["Add"],
    ]
    found = walk(graph, {"x": x}, ORT, EVALUATOR)
    assert found.ended
    assert [found.wrong, found.failing, found.unjudged] == [[], [], []]
    np.testing.assert_array_equal(found.values["y"], -2 * x.reshape(1, 6))
    np.testing.assert_array_equal(found.values["a"], x)


def test_what_follows_a_wrong_node_is_judged_on_the_definitions_result() -> None:
    class NegIsAbs:
        name, device, version = "wrong", "cpu", ""

        def narrows(self, dtype: str) -> str | None:
            return None

        def load(self, model: onnx.ModelProto, shapes: Any) -> Any:
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            for node in changed.graph.node:
                node.op_type = "Abs" if node.op_type == "Neg" else node.op_type
            return ORT.load(changed, shapes)

    x = np.array([1.0, -2.0], F32)
    graph = graph_of("n = Neg (x) y = Sqrt (n)", {"x": x}, ["y"])
    found = walk(graph, {"x": x}, NegIsAbs(), EVALUATOR)
    (fault,) = found.wrong
    assert fault.definition.operator == "Neg"
    assert fault.wrong[0].tolist() == [True, False]
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(-x)
    np.testing.assert_array_equal(found.values["y"], expected)


@pytest.mark.parametrize(
    ("operator", "x", "got", "is_right"),
    [
        # x·x underflows on the way, and the text says x·x.
        ("ReduceL2", [1e-30, 0.0], 0.0, True),
        ("ReduceL2", [1e-30, 0.0], 1e-30, True),
        ("ReduceL2", [3.0, 4.0], 4.9, False),
        ("LeakyRelu", [-np.inf], -np.inf, False),
    ],
)
def test_who_follows_the_text_step_by_step_is_right(operator: str, x: list[float], got: float, is_right: bool) -> None:
    attributes: dict[str, Any] = {"alpha": -1.0} if operator == "LeakyRelu" else {"keepdims": 0}
    definition = defined(operator, np.array(x, F32), **attributes)
    shape = () if operator == "ReduceL2" else (len(x),)
    assert (not_as_defined(definition, [np.full(shape, got, F32)]) is None) is is_right
