"""ONNX's own operators: drawn from their schemas, written as graphs, judged by their definitions."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from commands import answered, typed
from onnx import helper
from onnx_texts import onnx_model

from harness.compare.faults import Fault
from harness.compare.verdict import Outcome, Stage, Verdict, split_passes
from harness.core.invocation import Argument, Invocation, Literal, TensorSpec, Weight, contiguous_strides
from harness.core.onnx_arrays import build_array
from harness.core.onnx_operators import NEIGHBOURS, UnknownOnnxOperator, match_onnx, onnx_schemas
from harness.core.program import Program
from harness.core.route import GRAPH, Route
from harness.generate.case_library import load_onnx_cases
from harness.generate.draws import draw_invocations
from harness.generate.graph_mutations import mutate
from harness.generate.graph_seeds import graph_invocation, load_seeds
from harness.generate.onnx_case import UNDRAWN
from harness.generate.sources.forbidden import ForbiddenNodes
from harness.generate.sources.onnx_graphs import OnnxGraphs
from harness.generate.sources.onnx_operators import OnnxOperators
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.generate.sources.redrawn import Redrawn
from harness.generate.sources.source import Request
from harness.pipeline.drawn_graph import NoSuchForm, build_graph
from harness.pipeline.drawn_oracle import build_node, declare_outputs, evaluate_plainly, expect_by_definition
from harness.pipeline.graph_oracle import plain_form
from harness.pipeline.run_graph import run_graph
from harness.pipeline.start import start_backend
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.unit import Unit, run_unit
from harness.record import store
from harness.record.layout import ResultsError
from harness.run.backend import HasPassLog


def numbers(*values: float, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> TensorSpec:
    shape = (len(values),) if shape is None else shape
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(values))


def node(overload: str, **arguments: Argument) -> Invocation:
    return Invocation(overload, tuple(arguments.items()))


def asked(overload: str, examples: int) -> Request:
    return Request(
        overload=overload,
        dynamic=False,
        seed=3,
        examples=examples,
        values=None,
        dtypes=None,
        resize=lambda bases, count: [],
    )


PLAIN_ROUTE = Route(converter=GRAPH)


def ended(invocation: Invocation, *backends: str, route: Route = PLAIN_ROUTE) -> dict[str, Verdict]:
    """Run a case as a session does; backend → its row."""
    load_onnx_cases()
    unit = Unit(
        overload=invocation.overload,
        route=route,
        backends=backends,
        sources=(FromRecord((Replayed(invocation),)),),
    )
    with Supervisor(timeout=60) as supervisor:
        return {row.backend: row for rows in run_unit(unit, supervisor) for row in rows}


def test_each_operator_and_version_has_a_case_or_a_reason() -> None:
    named = {*load_onnx_cases(), *UNDRAWN}
    standard = [name for name, schema in onnx_schemas().items() if not schema.domain]
    assert [name for name in standard if not {name, name.rpartition(".")[0]} & named] == []


def test_what_is_drawn_can_be_written_and_is_mostly_valid() -> None:
    valid = written = 0
    for case in load_onnx_cases().values():
        for invocation in draw_invocations(case, seed=0, count=3):
            graph = build_graph(invocation)
            written += 1
            try:
                for value in graph.graph.output:
                    # A rank that depends on values is declared after evaluation.
                    value.type.tensor_type.shape.SetInParent()
                onnx.checker.check_model(graph)
                valid += 1
            except onnx.checker.ValidationError:
                pass
    assert valid > 0.97 * written > 1000


#: A case, the backends that are right, and those that are wrong.
JUDGED = {
    # Before version 13 all dimensions from `axis` on are one.
    "softmax-11-flattens": (
        node("ai.onnx.Softmax.11", input=numbers(*range(8), shape=(2, 2, 2)), axis=1),
        ("ort-cpu",),
        ("onnx-reference",),
    ),
    "scores-before-the-cap": (
        node(
            "ai.onnx.Attention.24",
            **{name: numbers(3.0, shape=(1, 1, 1, 1)) for name in "QKV"},
            scale=1.0,
            softcap=1.0,
            qk_matmul_output_mode=0,
            outputs=(0, 3),
        ),
        ("ort-cpu",),
        ("onnx-reference",),
    ),
    "nan-is-no-padding": (
        node("ai.onnx.AveragePool.19", X=numbers(float("nan"), 1.0, 3.0, shape=(1, 1, 3)), kernel_shape=(2,)),
        ("ort-cpu",),
        ("onnx-reference",),
    ),
    "lengths-of-sequences": (
        node(
            "ai.onnx.RNN.14",
            X=numbers(1.0, 2.0, shape=(2, 1, 1)),
            W=numbers(0.5, shape=(1, 1, 1)),
            R=numbers(0.5, shape=(1, 1, 1)),
            sequence_lens=numbers(1, dtype="int32"),
            hidden_size=1,
        ),
        ("ort-cpu",),
        ("onnx-reference",),
    ),
    # A limit beyond the tensor, and a step backwards: nothing lies between.
    "a-limit-that-stands-for-all": (
        node(
            "ai.onnx.Slice.13",
            data=numbers(1.0, 2.0, 3.0),
            starts=numbers(3, dtype="int64"),
            ends=numbers(2**63 - 1, dtype="int64"),
            axes=numbers(0, dtype="int64"),
            steps=numbers(-1, dtype="int64"),
        ),
        ("onnx-reference",),
        ("ort-cpu",),
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_an_operator_is_judged_by_the_text_of_its_version(name: str) -> None:
    invocation, right, wrong = JUDGED[name]
    rows = ended(invocation, *right, *wrong)
    assert [rows[backend].outcome for backend in right] == [Outcome.PASS] * len(right)
    for backend in wrong:
        row = rows[backend]
        assert (row.stage, row.outcome) == (Stage.COMPARE, Outcome.MISMATCH)
        assert (row.blame, row.component, row.place) == ("backend", backend, invocation.overload.split(".")[2])


_QUANTISED = {"x_zero_point": numbers(1, shape=(), dtype="int8"), "y_zero_point": numbers(0, shape=(), dtype="int8")}
_SCALES = {name: numbers(0.5, shape=()) for name in ("x_scale", "y_scale")}

#: Cases whose right result no text gives: an average without positions, a window that is larger than its input.
UNDEFINED = {
    "QLinearGlobalAveragePool": node(
        "com.microsoft.QLinearGlobalAveragePool.1", X=numbers(1, shape=(), dtype="int8"), **_QUANTISED, **_SCALES
    ),
    "QLinearAveragePool": node(
        "com.microsoft.QLinearAveragePool.1",
        X=numbers(1, shape=(1, 1, 1, 1), dtype="int8"),
        kernel_shape=(3, 3),
        **_QUANTISED,
        **_SCALES,
    ),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_a_case_that_no_text_defines_is_skipped(name: str) -> None:
    row = ended(UNDEFINED[name], "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome) == (Stage.REFERENCE, Outcome.SKIP)


#: Cases for which the standard allows another result than the first that its texts give.
LEFT_OPEN = {
    # The sum of squares leaves the range, its root does not.
    "root-of-a-sum-beyond-the-range": node(
        "ai.onnx.ReduceL2.18", data=numbers(2**32, 2**32, 2**32, 2**32, dtype="int64")
    ),
    "a-negative-zero-as-alpha": node("ai.onnx.Celu.12", X=numbers(0.75, -3.0), alpha=-0.0),
    # No float64 is the largest integer: it may have been rounded up, and wrapped.
    "the-mean-of-the-largest-integer": node("ai.onnx.ReduceMean.1", data=numbers(2**63 - 1, shape=(), dtype="int64")),
    "the-magnitude-of-the-smallest-integer": node(
        "ai.onnx.ReduceL1.13", data=numbers(-(2**63), shape=(), dtype="int64"), keepdims=0
    ),
}


@pytest.mark.parametrize("name", LEFT_OPEN)
def test_a_runtime_is_not_blamed_for_what_the_standard_leaves_open(name: str) -> None:
    row = ended(LEFT_OPEN[name], "ort-cpu")["ort-cpu"]
    assert (row.outcome, row.blame) == (Outcome.MISMATCH, "spec")


ONE = (1, 1, 1, 1)
#: Cases in which another result than that of exact arithmetic is right.
ROUNDED_ON_THE_WAY = {
    # An attribute is a float32, also where a node leaves it to its default.
    "epsilon-of-float32": node(
        "ai.onnx.BatchNormalization.9",
        X=numbers(3.75, 3.0, shape=(1, 1, 2), dtype="float64"),
        **{name: numbers(1.75, dtype="float64") for name in ("scale", "B")},
        **{name: numbers(0.0, dtype="float64") for name in ("mean", "var")},
    ),
    # The product leaves the range before the last input is added.
    "an-infinite-product": node(
        "com.microsoft.FusedConv.1",
        X=numbers(-3e38, -3e38, shape=(1, 1, 1, 2)),
        W=numbers(2.0, 2.0, shape=(1, 1, 1, 2)),
        B=numbers(0.0),
        Z=numbers(math.inf, shape=ONE),
        activation="Relu",
    ),
    "an-infinite-sum": node(
        "com.microsoft.SkipSimplifiedLayerNormalization.1",
        **{name: numbers(3e38, -1.0, 1.0, 2.0, shape=(1, 1, 4)) for name in ("input", "skip")},
        gamma=numbers(1.0, 1.0, 1.0, 1.0),
    ),
    "a-square-below-the-range": node("ai.onnx.LpPool.18", X=numbers(0.0, 1.2e-38, shape=(1, 1, 2)), kernel_shape=(2,)),
    # A score of -23 in float32 moves its weight by more than a rounding.
    "a-weight-of-a-coarse-score": node(
        "ai.onnx.Attention.24",
        Q=numbers(1.0, shape=ONE, dtype="float64"),
        K=numbers(0.0, -23.1234567891, shape=(1, 1, 2, 1), dtype="float64"),
        V=numbers(0.0, 1.0, shape=(1, 1, 2, 1), dtype="float64"),
        scale=1.0,
        softmax_precision=1,
    ),
}


@pytest.mark.parametrize("name", ROUNDED_ON_THE_WAY)
def test_what_a_text_rounds_on_the_way_is_right(name: str) -> None:
    row = ended(ROUNDED_ON_THE_WAY[name], "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome) == (Stage.COMPARE, Outcome.PASS)


def test_a_body_with_a_loop_is_evaluated_in_float64() -> None:
    tensors = {name: numbers(0.5, -0.25, shape=(1, 1, 2)) for name in ("query", "key", "value")}
    attention = node("ai.onnx.LinearAttention.27", **tensors, kv_num_heads=1, q_num_heads=1, update_rule="linear")
    evaluator = start_backend("onnx-reference")
    oracle = expect_by_definition(build_node(attention, evaluator), attention, evaluator)
    assert oracle.sensitivity is not None


@pytest.mark.parametrize("outputs", [(0,), (0, 1, 2, 3)])
def test_a_softmax_in_the_precision_that_was_asked_for_is_right(outputs: tuple[int, ...]) -> None:
    tensors = {name: numbers(1.1, -0.7946, 0.3, 0.6947, shape=(1, 1, 2, 2), dtype="float64") for name in "QKV"}
    row = ended(node("ai.onnx.Attention.23", **tensors, softmax_precision=1, outputs=outputs), "ort-cpu")["ort-cpu"]
    assert row.outcome is Outcome.PASS


def test_keys_that_are_passed_through_are_not_held_to_the_precision_of_the_softmax() -> None:
    tensors = {name: numbers(1.1, -0.7946, 0.3, 0.6947, shape=(1, 1, 2, 2), dtype="float64") for name in "QKV"}
    attention = node("ai.onnx.Attention.23", **tensors, softmax_precision=1, outputs=(0, 1, 2, 3))
    evaluator = start_backend("onnx-reference")
    oracle = expect_by_definition(build_node(attention, evaluator), attention, evaluator)
    wrong = {
        place
        for place in range(4)
        if oracle.compare([a * (1 + 3e-7) if i == place else a for i, a in enumerate(oracle.expected)]).problems
    }
    assert wrong == {1, 2}


@pytest.mark.parametrize(
    ("kind", "operators"),
    [
        ("identity", ["Identity", "Relu", "Identity"]),
        ("cast", ["Cast", "Cast", "Relu", "Cast", "Cast"]),
        ("reader", ["Cast", "Cast", "Relu", "Identity", "Identity"]),
        ("twice", ["Relu", "Relu"]),
    ],
)
def test_a_node_is_judged_among_neighbours(kind: str, operators: list[str]) -> None:
    relu = node("ai.onnx.Relu.14", X=numbers(-1.0, math.nan, 2.0), neighbours=kind)
    assert [n.op_type for n in build_graph(relu).graph.node] == operators
    assert ended(relu, "ort-cpu")["ort-cpu"].outcome is Outcome.PASS
    # Each output but that of the neighbour on the way is compared.
    evaluator = start_backend("onnx-reference")
    drawn = build_node(relu, evaluator)
    oracle = expect_by_definition(drawn, relu, evaluator)
    assert len(oracle.expected) == len(drawn.graph.graph.output)
    for place, right in enumerate(oracle.expected):
        wrong = [*oracle.expected]
        wrong[place] = right + right.dtype.type(1)
        assert [problem.outputs for problem in oracle.compare(wrong).problems] == [(place,)]


def test_neighbours_are_drawn_for_a_share_of_the_nodes() -> None:
    groups = OnnxOperators().find(asked("ai.onnx.Add.14", 512)).groups
    drawn = [dict(group.exported.arguments).get(NEIGHBOURS) for group in groups]
    assert 0.05 < sum(kind is not None for kind in drawn) / len(drawn) < 0.3
    assert {*drawn} == {None, "identity", "cast", "reader", "twice"}


def test_a_node_that_fails_only_among_casts_is_found() -> None:
    sizes = Weight(numbers(2, 3, 3, 3, 4, dtype="int64"))
    grid = node("ai.onnx.AffineGrid.20", theta=numbers(*[0.5] * 24, shape=(2, 3, 4), dtype="float16"), size=sizes)
    assert ended(grid, "ort-cpu")["ort-cpu"].outcome is Outcome.PASS
    row = ended(replace(grid, arguments=(*grid.arguments, (NEIGHBOURS, "cast"))), "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome, row.blame) == (Stage.RUN, Outcome.ERROR, "backend")


#: Nodes that a text forbids, the stage at which ONNX Runtime refuses them, and a word of the reason.
FORBIDDEN = {
    "unlike-sizes": (
        node("ai.onnx.MatMul.13", A=numbers(1.0, 2.0), B=numbers(1.0, 2.0, 3.0)),
        Stage.LOAD,
        "Incompatible dimensions",
    ),
    "index-out-of-bounds": (
        node("ai.onnx.Gather.13", data=numbers(1.0, 2.0), indices=numbers(5, dtype="int64")),
        Stage.RUN,
        "out of bounds",
    ),
    "no-multiple-of-the-block": (
        node("ai.onnx.DepthToSpace.13", input=numbers(1.0, shape=(1, 1, 1, 1)), blocksize=2),
        Stage.RUN,
        "C/(blocksize * blocksize)",
    ),
    "an-axis-of-no-dimension": (
        node("ai.onnx.ArgMax.11", data=numbers(1.0, shape=())),
        Stage.LOAD,
        "[-r, r-1]",
    ),
    "unlike-terms": (
        node("ai.onnx.Gemm.11", A=numbers(shape=(0, 1)), B=numbers(shape=(0, 1)), transA=1, transB=1),
        Stage.RUN,
        "(K, N) if transB is 0",
    ),
    "indices-beyond-another-dimension": (
        node(
            "ai.onnx.GatherElements.13",
            data=numbers(1.0, 2.0, shape=(1, 2)),
            indices=numbers(0, 0, 0, shape=(1, 3), dtype="int64"),
            axis=0,
        ),
        Stage.RUN,
        "input[index[i][j][k]][j][k] if axis = 0",
    ),
    # ONNX Runtime computes it.
    "a-range-from-a-vector": (
        node("ai.onnx.Range.27", **{name: numbers(1.0) for name in ("start", "limit", "delta")}),
        Stage.COMPARE,
        "Scalar",
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_text_forbids_is_run_to_see_that_it_is_refused(name: str) -> None:
    invocation, stage, reason = FORBIDDEN[name]
    row = ended(invocation, "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome) == (stage, Outcome.SKIP)
    assert reason in row.message


def test_a_runtime_that_dies_of_what_a_text_forbids_is_blamed() -> None:
    pytest.importorskip("openvino")
    row = ended(node("ai.onnx.Clip.13", max=numbers(1.0, shape=())), "openvino")["openvino"]
    assert (row.stage, row.outcome, row.blame) == (Stage.RUN, Outcome.CRASH, "backend")
    assert (row.component, row.place, row.fault) == ("openvino", "Clip", Fault.DIES_OF_FORBIDDEN)


def test_a_node_that_kills_the_checker_of_onnx_costs_one_case() -> None:
    data, indices = numbers(*range(27), shape=(3, 3, 3)), numbers(shape=(3, 0, 2), dtype="int64")
    row = ended(node("ai.onnx.GatherND.13", data=data, indices=indices, batch_dims=-(2**31)), "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome, row.component) == (Stage.REFERENCE, Outcome.CRASH, "onnx")


def test_forbidden_nodes_are_drawn_apart_and_never_judged() -> None:
    unit = Unit(
        overload="ai.onnx.Gather.13",
        route=PLAIN_ROUTE,
        backends=("ort-cpu",),
        examples=512,
        sources=(ForbiddenNodes(),),
    )
    with Supervisor() as supervisor:
        rows = [row for part in run_unit(unit, supervisor) for row in part]
    assert {(row.source, row.outcome) for row in rows} == {("forbidden", Outcome.SKIP)}
    # Some are allowed after all, and not run.
    assert {row.stage for row in rows} == {Stage.REFERENCE, Stage.LOAD, Stage.RUN}


def test_integers_of_four_bits_go_in_and_out() -> None:
    invocation = node(
        "ai.onnx.QuantizeLinear.21", x=numbers(-9.0, 2.5, 100.0), y_scale=numbers(1.0, shape=()),
        y_zero_point=numbers(0, shape=(), dtype="int4"),
    )  # fmt: skip
    assert ended(invocation, "ort-cpu")["ort-cpu"].outcome is Outcome.PASS
    invocation = node("ai.onnx.Transpose.21", data=numbers(-8, 7, dtype="int4", shape=(1, 2)))
    assert ended(invocation, "ort-cpu")["ort-cpu"].outcome is Outcome.PASS


def test_a_sequence_is_made_of_tensors_and_joined_again() -> None:
    elements = numbers(1.0, 2.0), numbers(3.0, 4.0)
    graph = build_graph(node("ai.onnx.SequenceInsert.11", input_sequence=elements, tensor=numbers(5.0, 6.0)))
    assert [n.op_type for n in graph.graph.node] == ["SequenceConstruct", "SequenceInsert", "ConcatFromSequence"]
    row = ended(
        node("ai.onnx.SequenceAt.11", input_sequence=elements, position=numbers(-1, shape=(), dtype="int64")), "ort-cpu"
    )
    assert row["ort-cpu"].outcome is Outcome.PASS


def test_a_version_is_written_at_any_opset_that_has_it() -> None:
    relu = node("ai.onnx.Relu.14", X=numbers(-1.0, 2.0))
    assert [build_graph(relu, opset=opset).opset_import[0].version for opset in (None, 14, 20)] == [14, 14, 20]
    with pytest.raises(NoSuchForm, match="Relu"):
        build_graph(relu, opset=13)


def test_names_of_operators_are_those_of_onnx() -> None:
    known = list(load_onnx_cases())
    assert match_onnx("Resize.19", known) == ["ai.onnx.Resize.19"]
    assert match_onnx("ai.onnx.Celu", known) == ["ai.onnx.Celu.12", "ai.onnx.Celu.28"]
    with pytest.raises(UnknownOnnxOperator, match="near: Resize"):
        match_onnx("Resise", known)
    with pytest.raises(UnknownOnnxOperator, match="10, 11, 13, 18, 19"):
        match_onnx("Resize.12", known)


def test_a_run_has_the_operators_of_its_opset() -> None:
    plan = make_plan(Options(sources=("onnx", "graphs"), opset=13, ops=("Relu", "Resize")))
    assert sorted({unit.overload for unit in plan.units}) == ["ai.onnx.Relu.13", "ai.onnx.Resize.13"]
    assert {unit.route.converter for unit in plan.units} == {GRAPH}
    with pytest.raises(UsageProblem, match="no converter makes"):
        make_plan(Options(sources=("onnx",), converters=("dynamo",)))


def test_a_case_keeps_its_id() -> None:
    assert node("ai.onnx.Relu.14", X=numbers(-1.0, 2.0)).case_id == "6893c9ce242b"


@pytest.mark.parametrize("overload", load_seeds())
def test_a_seed_computes_the_same_as_an_invocation(overload: str) -> None:
    model = load_seeds()[overload]
    invocation = graph_invocation(model, overload)
    evaluate = partial(evaluate_plainly, start_backend("ort-cpu"))
    graph = declare_outputs(build_graph(invocation), invocation, evaluate)
    onnx.checker.check_model(graph, full_check=True)
    arrays = [build_array(spec) for spec in invocation.tensors()]
    # An invocation has its inputs in the order in which they are read.
    read = list(
        dict.fromkeys(n for node in model.graph.node for n in node.input if n in {i.name for i in model.graph.input})
    )
    plain = plain_form(start_backend("ort-cpu"))
    names = [value.name for value in graph.graph.input]
    ours = run_graph(plain, graph, dict(zip(names, arrays, strict=True))).outputs_or_raise()
    theirs = run_graph(plain, model, dict(zip(read, arrays, strict=True))).outputs_or_raise()
    for got, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(got, right)


def test_mutants_are_valid_and_the_same_for_a_seed() -> None:
    first, again = (OnnxGraphs().find(asked("graph.gelu-erf", 40)).groups for _ in range(2))
    assert [group.exported.case_id for group in first] == [group.exported.case_id for group in again]
    assert len({group.exported.structure_id for group in first}) > 30
    for group in first:
        onnx.checker.check_model(build_graph(group.exported), full_check=True)


def changed(overload: str, change: Callable[[onnx.GraphProto], object]) -> Invocation:
    model = onnx.ModelProto()
    model.CopyFrom(load_seeds()[overload])
    change(model.graph)
    return graph_invocation(model, overload)


def swap(operator: str) -> Callable[[onnx.GraphProto], object]:
    def change(graph: onnx.GraphProto) -> None:
        node = next(node for node in graph.node if node.op_type == operator)
        node.input[:] = reversed(node.input)

    return change


def constant_of_rank(name: str, *shape: int) -> Callable[[onnx.GraphProto], object]:
    def change(graph: onnx.GraphProto) -> None:
        tensor = next(tensor for tensor in graph.initializer if tensor.name == name)
        tensor.dims[:] = shape

    return change


#: A change of a seed, and the pass of ONNX Runtime 1.32 that overlooks it.
OVERLOOKED = {
    "swapped-pow": (changed("graph.layer-norm", swap("Pow")), "LayerNormFusion"),
    "ranked-one": (changed("graph.div-mul", constant_of_rank("one", 1, 1, 1)), "DivMulFusion"),
}


@pytest.mark.parametrize("name", OVERLOOKED)
def test_the_pass_that_overlooks_a_change_is_named(name: str) -> None:
    invocation, guilty = OVERLOOKED[name]
    row = ended(invocation, "ort-cpu")["ort-cpu"]
    assert (row.outcome, row.blame, row.blame_rule) == (Outcome.MISMATCH, "backend", "graph-optimisation")
    assert guilty in row.place


@pytest.mark.parametrize(("seed", "operator"), [("graph.relu-clip", "Clip"), ("graph.min-max", "Max")])
def test_mutants_have_more_and_fewer_inputs(seed: str, operator: str) -> None:
    model = load_seeds()[seed]
    mutants = [mutant for number in range(200) if (mutant := mutate(model, Random(number), 1)) is not None]
    given = {sum(map(bool, n.input)) for mutant in mutants for n in mutant.graph.node if n.op_type == operator}
    assert {2, 3} <= given


def test_names_that_derive_from_others_are_kept() -> None:
    graph = build_graph(Invocation.from_json(NAMED_AS_MADE.json), index=3).graph
    (relu, add) = (next(n for n in graph.node if n.op_type == operator) for operator in ("Relu", "Add"))
    assert list(add.input) == [relu.output[0], f"{relu.output[0]}_min"]
    assert "the name of" in str(NAMED_AS_MADE)
    model = load_seeds()["graph.layer-norm"]
    mutants = [mutant for number in range(200) if (mutant := mutate(model, Random(number), 1)) is not None]
    derived = [graph_invocation(mutant, "graph.layer-norm") for mutant in mutants]
    named = [graph for graph in derived if Program.of(graph).names]
    assert named
    for invocation in named:
        onnx.checker.check_model(build_graph(invocation), full_check=True)


def test_seeds_pass_as_they_are() -> None:
    for overload in ("graph.layer-norm", "graph.qdq-conv", "graph.attention", "graph.unsqueeze-11"):
        assert ended(graph_invocation(load_seeds()[overload], overload), "ort-cpu")["ort-cpu"].outcome is Outcome.PASS


def test_what_a_runtime_refuses_without_optimisations_says_nothing_of_them() -> None:
    without_kernel = onnx_model("double[2] x", "double[2] y", "z = Acosh (x) y = Relu (z)")
    row = ended(graph_invocation(without_kernel, "graph.acosh"), "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome) == (Stage.REFERENCE, Outcome.SKIP)
    # The checker rejects it: channels differ.
    broken = changed("graph.conv-mul", lambda graph: graph.initializer[0].dims.__setitem__(slice(None), [4, 1, 2, 2]))
    row = ended(broken, "ort-cpu")["ort-cpu"]
    assert (row.stage, row.outcome) == (Stage.LOAD, Outcome.SKIP)


def test_a_runtime_that_cannot_turn_off_its_optimisations_is_not_judged_by_itself() -> None:
    seed = graph_invocation(load_seeds()["graph.layer-norm"], "graph.layer-norm")
    row = ended(seed, "onnx-reference")["onnx-reference"]
    assert (row.stage, row.outcome) == (Stage.REFERENCE, Outcome.SKIP)
    pytest.importorskip("openvino")
    assert ended(seed, "openvino")["openvino"].outcome is Outcome.PASS


def test_what_the_definitions_give_is_right_too() -> None:
    # ONNX Runtime leaves out a cast to float16 and back without its optimisations, and may compute it with them.
    turned = changed(
        "graph.casts", lambda graph: graph.node.insert(2, helper.make_node("Identity", ["back"], ["kept"]))
    )
    assert ended(turned, "ort-cpu")["ort-cpu"].outcome is Outcome.PASS


def test_a_graph_with_open_sizes_is_fused_in_another_way() -> None:
    seed = graph_invocation(load_seeds()["graph.bert-attention"], "graph.bert-attention")
    backend = start_backend("ort-cpu")
    assert isinstance(backend, HasPassLog)
    passes = [backend.applied_passes(build_graph(seed, is_open=is_open)) for is_open in (False, True)]
    assert ["AttentionFusion" in applied for applied in passes] == [False, True]
    assert ended(seed, "ort-cpu", route=replace(PLAIN_ROUTE, dynamic=True))["ort-cpu"].outcome is Outcome.PASS


def test_graphs_that_an_optimisation_changed_are_changed_again() -> None:
    unit = Unit(
        overload="graph.gelu-erf",
        route=PLAIN_ROUTE,
        backends=("ort-cpu",),
        seed=1,
        examples=32,
        sources=(OnnxGraphs(), Redrawn()),
    )
    with Supervisor() as supervisor:
        rows = [row for part in run_unit(unit, supervisor) for row in part]
    again = [row for row in rows if row.source == Redrawn.name]
    assert len(again) > 8
    fired = {name for row in rows for name in split_passes(row.backend_passes)}
    assert "GeluFusionL2" in fired
    assert not {row.structure_id for row in again} & {row.structure_id for row in rows if row not in again}


SOFTMAX_OF_ONE = graph_invocation(
    onnx_model("float[2,1] x", "float[2,1] y", "y = Softmax <axis = 1> (x)"), "graph.softmax"
).with_values(lambda spec: Literal((math.nan, 1.0)))
#: Two rewrites name what they make after the input that both read.
TWO_OF_ONE_NAME = graph_invocation(
    onnx_model(
        "float[2,3] x",
        "float[2,3] a, float[2,3] b",
        "a0 = Max (x, low) a = Min (a0, high) b0 = Min (x, high) b = Max (b0, low)",
        low=np.float32(-1),
        high=np.float32(1.5),
    ),
    "graph.min-max",
)
#: A weight has the name that a rewrite gives to what it makes.
NAMED_AS_MADE = graph_invocation(
    onnx_model(
        "float[2,3] x",
        "float[2,3] a, float[2,3] b",
        "h = Relu (x) a0 = Max (h, low) a = Min (a0, high) b = Add (h, h_min)",
        low=np.float32(-1),
        high=np.float32(1.5),
        h_min=np.float32(100),
    ),
    "graph.min-max",
)
#: A transform, a graph that it breaks, and its guilty pass.
BROKEN = {
    "name-of-a-weight": ("onnxscript", NAMED_AS_MADE, "NameFixPass"),
    "names-that-collide": ("onnxscript", TWO_OF_ONE_NAME, "NameFixPass"),
    "softmax-of-one": ("onnxsim", SOFTMAX_OF_ONE, ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_transform_is_blamed_with_its_pass(name: str) -> None:
    transform, invocation, guilty = BROKEN[name]
    pytest.importorskip(transform)
    row = ended(invocation, "ort-cpu", route=Route.parse(f"{GRAPH}+{transform}"))["ort-cpu"]
    assert (row.blame, row.blame_rule) == ("transform", "transform-breaks-model")
    assert row.place == (f"{transform}, {guilty}" if guilty else transform)


def test_an_operator_that_another_set_lacks_is_unsupported() -> None:
    route = Route(converter=GRAPH, transforms=("opset-13",))
    row = ended(node("ai.onnx.Mish.18", X=numbers(1.0, 2.0)), "ort-cpu", route=route)["ort-cpu"]
    assert (row.stage, row.outcome) == (Stage.TRANSFORM, Outcome.UNSUPPORTED)
    assert (row.blame, row.blame_rule, row.place) == ("transform", "cannot-transform", "opset-13")


def test_a_transform_that_removes_an_input_is_blamed() -> None:
    pytest.importorskip("onnxslim")
    seed = "graph.reshape-computed"
    row = ended(graph_invocation(load_seeds()[seed], seed), "ort-cpu", route=Route.parse(f"{GRAPH}+onnxslim"))[
        "ort-cpu"
    ]
    assert (row.stage, row.outcome) == (Stage.TRANSFORM, Outcome.ERROR)
    assert (row.blame, row.place) == ("transform", "onnxslim")


def test_a_change_that_would_take_all_memory_is_not_made() -> None:
    # onnx's inference makes the tensor that Expand asks for.
    model = onnx.ModelProto()
    model.CopyFrom(load_seeds()["graph.space-to-depth"])
    model.graph.node.append(onnx.helper.make_node("Expand", ["one", "end"], ["huge"]))
    assert all(mutate(model, Random(seed), 1) is None for seed in range(20))


@pytest.mark.slow
def test_a_graph_is_reproduced_without_the_harness(tmp_path: Path) -> None:
    run, script = tmp_path / "run", tmp_path / "script.py"
    drawn = [sys.executable, "-m", "pytest", "harness", "--onnx", "--op", "graph.layer-norm", "--examples", "16"]
    subprocess.run([*drawn, "--results-dir", str(run), "-p", "no:cacheprovider"], capture_output=True, check=False)
    failing = next(v for v in store.verdicts(run) if v.outcome is Outcome.MISMATCH)
    typed("repro", failing.case_id, "--run", str(run), "--out", str(script))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "import harness" not in script.read_text()


@pytest.mark.slow
def test_the_command_runs_an_operator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "harness", "--onnx", "--op", "Celu", "--examples", "16"]
    done = subprocess.run(
        [*command, "--results-dir", str(tmp_path / "run"), "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "graph → ort-cpu" in done.stdout
    (invalid,) = answered("summary", tmp_path / "run")["invalid_nodes"]
    assert (invalid["backend"], invalid["died"]) == ("ort-cpu", {})
    assert invalid["refused"] > 2
    assert done.returncode in (0, 1)
    versions = {"ai.onnx.Celu.12", "ai.onnx.Celu.28"}
    for name in ("Celu", "ai.onnx.Celu", "C*", "ai.onnx.Celu.12"):
        table = store.Selection(overload=(name,)).read(tmp_path / "run", ["overload"])
        assert set(table["overload"].to_pylist()) == (versions if name[-1] != "2" else {"ai.onnx.Celu.12"})
    with pytest.raises(ResultsError, match=r"near: ai\.onnx\.Celu"):
        store.Selection(overload=("Cellu",)).read(tmp_path / "run", ["overload"])
