"""Single witnesses, in this process: their order, and their testimony about a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from failure_contexts import diagnosis_of, start, states, trial_of, words_of
from harness_runs import record_of, unary, vector
from onnx_texts import onnx_model
from recorded_run import summary_text

from harness.blame import witness as witness_list
from harness.blame.failure_context import FailureContext
from harness.blame.witness import Turn, Witness, add_witnesses, backends_to_ask
from harness.blame.witnesses import witnesses_of
from harness.blame.witnesses.fewer_bits import look_for_fewer_bits
from harness.blame.witnesses.pytorch import ask_decomposition, ask_meta_kernel
from harness.blame.witnesses.runtimes import narrow_model
from harness.compare.diagnosis import Diagnosis, Finding, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.generate.case_library import load_cases
from harness.pipeline.case_run import CaseRun
from harness.pipeline.task import Settings
from harness.run.backend import BackendSession, ShapeRange


def _raised(decision: Diagnosis) -> list[str]:
    """The witnesses that raised an exception."""
    return [t.facts["witness"] for t in decision.testimony if t.finding is Finding.RAISED]


def _diagnosis(decision: Diagnosis) -> Diagnosis:
    return Diagnosis(decision.blame, decision.rule, facts=decision.facts, testimony=decision.testimony)


def test_other_draws_that_are_wrong_in_the_same_way_are_the_same_answer() -> None:
    # One run of float16 numbers below 1 has a 1, which is never right, once in a hundred times.
    load_cases()
    call = Invocation("aten.rand_like.default", (("self", vector([0.0] * 500, "float16")),))
    context = trial_of(call)
    assert context.comparison is not None
    assert "1.0 cannot be drawn there" in context.comparison.message
    # No two generators give the same numbers, though they may be wrong in the same way.
    assert context.got is not None
    ran = CaseRun(stage=Stage.RUN, outcome=Outcome.PASS)
    assert context.classify(replace(ran, outputs=(context.got[0][::-1],)))[0] is Finding.SAME
    assert context.classify(replace(ran, outputs=(np.full(500, 0.5, np.float16),)))[0] is Finding.OTHER
    assert context.classify(replace(ran, outputs=(context.reference.expected[0],)))[0] is Finding.RIGHT


def graph_of(operator: str) -> onnx.ModelProto:
    """One node with the names that an export of one call has."""
    return onnx_model("float[2] c0_i0", "float[2] c0_o0", f"c0_o0 = {operator} (c0_i0)")


# The list of witnesses


def test_each_witness_has_its_place_in_the_order() -> None:
    first = [w.name for w in witnesses_of(Settings()) if w.turn is Turn.FIRST]
    assert first.index("onnx-reference") + 1 == first.index("ort-cpu") < first.index("the ONNX checker")
    assert "openvino" not in first
    places = [w.place for w in witnesses_of(Settings())]
    assert places == sorted(places)


def test_a_backends_entry_says_whether_it_is_asked() -> None:
    assert backends_to_ask() == ("onnx-reference", "ort-cpu")
    assert set(backends_to_ask(last=True)) <= {"openvino"}
    assert backends_to_ask(("ort-cpu",)) == ("ort-cpu",)


# A witness that raises


def test_a_witness_that_raises_is_on_record_and_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = unary("aten.relu.default", [-1.0, 2.0])
    before = diagnosis_of(trial_of(call, model=graph_of("Neg")))
    monkeypatch.setattr(witness_list, "FACTORIES", [*witness_list.FACTORIES])
    monkeypatch.setattr("harness.blame.witnesses.FACTORIES", witness_list.FACTORIES)

    def refuse(context: FailureContext) -> Iterator[Testimony]:
        raise ValueError("no idea. Ask others")
        yield

    add_witnesses(lambda settings: [Witness("the planted one", Turn.FIRST, 0, refuse)])
    # Settings that no other test has: the list of witnesses is made once for each.
    context = trial_of(call, model=graph_of("Neg"), settings=Settings(batch_size=63))
    after = diagnosis_of(context)
    said = "the planted one could not be asked: ValueError: no idea. Ask others."
    assert (before.blame, f"{words_of(before)} {said}") == (after.blame, words_of(after))
    assert _raised(after) == ["the planted one"]

    failed = {"outcome": Outcome.MISMATCH, "blame": after.blame, "diagnosis": _diagnosis(after).json}
    run = record_of(tmp_path / "run", [call, unary("aten.relu.default", [-3.0])], **failed)
    counted = "Diagnosis probes that crashed: the planted one (2 times)"
    assert counted in summary_text(run, width=160, verbose=True)
    assert "probes" not in summary_text(run, width=160)
    assert "probes" not in summary_text(record_of(tmp_path / "other", [call]), width=160, verbose=True)


@pytest.mark.parametrize(
    "call",
    [
        # Ends in a primitive that calls the kernel, whose definition ends in the primitive, and so on.
        unary("aten.neg.default", [1.0, 2.0]),
        # Takes `alpha` by name only, which the kernel takes by position.
        Invocation("aten.add.Scalar", (*unary("aten.neg.default", [1.0, 2.0]).arguments, ("other", 2), ("alpha", 3))),
    ],
    ids=["neg", "add"],
)
def test_pytorchs_decomposition_says_nothing_of_what_it_cannot_take(call: Invocation) -> None:
    assert list(ask_decomposition.testify(trial_of(call, model=graph_of("Relu")))) == []


def test_pytorchs_decomposition_may_refuse_what_its_kernel_takes() -> None:
    image = TensorSpec((1, 1, 2, 2), "float32", (4, 4, 2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))
    # The kernel stays within the image, whatever the scales say.
    scales = (("scales_h", 0.25), ("scales_w", 0.25))
    call = Invocation("aten.upsample_nearest2d.default", (("self", image), ("output_size", (2, 2)), *scales))
    (said,) = ask_decomposition.testify(trial_of(call))
    assert said.finding is Finding.REFUSES
    assert said.facts["error"].startswith("IndexError")


def test_the_meta_kernel_says_nothing_where_sizes_hang_on_values() -> None:
    call = unary("aten.nonzero.default", [1.0, 0.0])
    # The graph gives one row less than PyTorch: what this witness is asked about.
    model = onnx_model("float[2] c0_i0", "int64[0,1] c0_o0", "c0_o0 = Constant <value = int64[0,1] {}> ()")
    context = trial_of(call, model=model)
    assert context.comparison is not None
    assert context.comparison.problem == "shape"
    assert list(ask_meta_kernel.testify(context)) == []

    first = ("start", TensorSpec((), "int64", (), 0, Literal((1,))))
    two = unary("aten.neg.default", [1.0, 2.0]).arguments
    narrowed = Invocation("aten.narrow.Tensor", (*two, ("dim", 0), first, ("length", 1)))
    context = trial_of(narrowed, model=graph_of("Relu"))
    assert context.comparison is not None
    assert context.comparison.problem == "shape"
    assert list(ask_meta_kernel.testify(context)) == []


# What witnesses read in a graph


def test_a_cast_within_a_branch_counts_as_the_graphs() -> None:
    call = unary("aten.neg.default", [1 / 3, 2 / 3], "float64")
    branch = "{ narrow = Cast <to = 1> (exact) result = Cast <to = 11> (narrow) }"
    nodes = f"""exact = Neg (c0_i0) yes = Constant <value = bool {{1}}> ()
        c0_o0 = If <then_branch = a () => (double[2] result) {branch},
        else_branch = b () => (double[2] result) {branch}> (yes)"""
    model = onnx_model("double[2] c0_i0", "double[2] c0_o0", nodes)
    onnx.checker.check_model(model, full_check=True)
    (said,) = look_for_fewer_bits.testify(trial_of(call, model=model))
    assert said.statement == "cast-to-float32"


def test_the_graph_in_float32_has_no_float64_left_in_branches_and_sequences() -> None:
    branch = "{ one = Constant <value = double[1] {1.0}> () inner = SequenceConstruct (one) }"
    nodes = f"""c0_o0 = Neg (c0_i0) yes = Constant <value = bool {{1}}> ()
        sequence = If <then_branch = a () => (seq(double[1]) inner) {branch},
        else_branch = b () => (seq(double[1]) inner) {branch}> (yes)"""
    model = onnx_model("double[2] c0_i0", "double[2] c0_o0", nodes)
    onnx.checker.check_model(model, full_check=True)
    narrow = narrow_model(model)
    onnx.checker.check_model(narrow, full_check=True)
    assert "DOUBLE" not in onnx.printer.to_text(narrow).upper()


def test_a_mean_of_what_is_left_without_nan_is_the_evaluators_fault() -> None:
    window = TensorSpec((1, 1, 1, 2), "float64", (2, 2, 2, 1), 0, Literal((float("nan"), 0.3)))
    call = Invocation(
        "aten.avg_pool2d.default",
        (("self", window), ("kernel_size", (1, 2)), ("count_include_pad", False)),
    )
    decision = diagnosis_of(trial_of(call, backend="onnx-reference"))
    assert (decision.blame, decision.rule) == ("backend", "wrong-node")


def test_outputs_that_are_wrong_in_another_way_are_another_failure() -> None:
    # OpenVINO gives a scalar for a constant without elements; behind it outputs have another dtype.
    pytest.importorskip("openvino")
    numbers = TensorSpec((2, 1, 2), "float16", (2, 2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))
    ones = [(name, vector([1.0], "float16")) for name in ("weight", "bias", "running_mean", "running_var")]
    call = Invocation(
        "aten._batch_norm_with_update_functional.default",
        (("input", numbers), *ones, ("momentum", 1.0), ("eps", 0.5)),
    )
    decision = diagnosis_of(trial_of(call, backend="openvino"))
    assert decision.blame == "backend"


def test_of_two_wrong_nodes_each_of_which_stops_the_graph_one_is_named() -> None:
    # An empty dimension that is to be summed over is kept: neither sum fits the other's right result.
    empty = TensorSpec((2, 0), "float32", (1, 1), 0, Literal(()))
    call = Invocation("aten._euclidean_dist.default", (("x1", empty), ("x2", replace(empty, shape=(3, 0)))))
    decision = diagnosis_of(trial_of(call, backend="onnx-api:planted.keeps_empty"))
    assert decision.blame == "backend"
    assert states(decision, "wrong-node/wrong", operator="ReduceSum")
    assert not _raised(decision)


# Complex numbers are fed as pairs


class WithinRanges:
    """ONNX Runtime, but as strict with shapes as TensorRT: they must lie within the ranges of the build."""

    name, device, version = "strict", "cpu", ""

    def narrows(self, dtype: str) -> str | None:
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        assert shapes is not None
        session, ranges = start("ort-cpu").load(model, None), shapes

        class Strict:
            runnable = True

            def run(self, feeds: Mapping[str, Array]) -> list[Array]:
                for name, array in feeds.items():
                    allowed = zip(ranges[name].min, array.shape, ranges[name].max, strict=True)
                    if not all(low <= size <= high for low, size, high in allowed):
                        raise ValueError(f"{name}: {array.shape} is out of range")
                return session.run(feeds)

        return Strict()


def test_a_dynamic_model_is_asked_within_the_ranges_of_what_it_is_fed() -> None:
    calls = [Invocation("aten.abs.default", (("self", vector([1.0 + 2.0j] * size, "complex64")),)) for size in (3, 5)]
    context = trial_of(*calls, dynamic=True)
    answer = context.run_model(WithinRanges(), context.model)
    assert answer.failure is None
    assert answer.outputs is not None
