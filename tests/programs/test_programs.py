"""Programs of several calls: as values, drawn, judged, blamed, shrunk and written as scripts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from failure_contexts import converter_called, diagnosis_of, start, states, trial_of
from harness_runs import literal_unit, output, rows, run_harness, verdict_of
from sampling import sampled

from harness.compare.comparison import compare
from harness.compare.diagnosis import CALL_ALONE, COMPOSED, Diagnosis
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import (
    Input,
    InvalidInvocation,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.program import (
    Program,
    Returned,
    calls_behind,
    disjoint_outputs,
    results_in,
    share_inputs,
    unshare_inputs,
)
from harness.core.route import Route
from harness.core.tensors import bind, build_tensors
from harness.core.torch_arrays import to_numpy
from harness.gate.baseline.file import baseline_of_run, read_baseline, write_baseline
from harness.generate.case_library import load_cases
from harness.generate.program_draws import draw_program, other_values
from harness.generate.programs import ProgramDraw, load_patterns, pattern
from harness.pipeline.chain import is_chain_of_right_calls, run_calls
from harness.pipeline.program import CallRunner, CallStructure
from harness.pipeline.reference import run_reference
from harness.pipeline.run_case import run_case
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import find_groups, run_part
from harness.present.call_text import torch_call
from harness.reproduce.call_source import source_of
from harness.reproduce.failure import find_failure
from harness.reproduce.program_shrink import plainer_programs
from harness.reproduce.script import write_script
from harness.reproduce.script_text import run_text
from harness.reproduce.shrink_session import failures, shrink_run


def tensor(shape: tuple[int, ...], seed: int = 1, dtype: str = "float32", domain: Any = ("any",)) -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(tuple(domain), "plain", seed))


def given(values: list[float], shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


def program(*calls: tuple[str, dict[str, Any]], returns: tuple[Returned, ...] = ()) -> Invocation:
    made = tuple(Invocation(name, tuple(arguments.items())) for name, arguments in calls)
    return Program("test", made, returns or (Result(len(made) - 1),)).invocation


DYNAMO_TO_ORT = CallRunner(run_case, converter_called("dynamo"), [start("ort-cpu")], Route(converter="dynamo"))

NORMALISED = program(
    ("aten.conv2d.default", {"input": tensor((1, 2, 4, 4)), "weight": Weight(tensor((3, 2, 2, 2), 2))}),
    (
        "aten.batch_norm.default",
        {
            "input": Result(0),
            "weight": Weight(tensor((3,), 3)),
            "bias": Weight(tensor((3,), 4)),
            "running_mean": Weight(tensor((3,), 5)),
            "running_var": Weight(tensor((3,), 6, domain=("range", 0.5, 2.0))),
            "training": False,
            "momentum": 0.1,
            "eps": 1e-5,
            "cudnn_enabled": False,
        },
    ),
    ("aten.relu.default", {"self": Result(1)}),
    returns=(Result(2), Result(0)),
)


def test_a_program_is_read_back_from_its_json() -> None:
    again = Invocation.from_json(NORMALISED.json)
    assert again == NORMALISED
    assert again.case_id == NORMALISED.case_id
    assert Program.of(again).invocation == again
    first = [to_numpy(t) for t in bind(NORMALISED)(build_tensors(NORMALISED))]
    second = [to_numpy(t) for t in bind(again)(build_tensors(again))]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_other_values_of_the_inputs_keep_the_structure_and_the_weights() -> None:
    other = other_values(NORMALISED, 1)
    assert other.case_id != NORMALISED.case_id
    assert other.structure_id == NORMALISED.structure_id
    weights = [json.loads(p.json)["arguments"]["calls"][0][1][1] for p in (other, NORMALISED)]
    assert weights[0] == weights[1]


def test_a_call_cannot_take_what_is_computed_later() -> None:
    with pytest.raises(InvalidInvocation, match="takes what is computed later"):
        Program.of(program(("aten.relu.default", {"self": Result(0)})))


HELD = Weight(tensor((2, 3), 8, "float16"))
RESIDUAL = program(
    ("aten.neg.default", {"self": tensor((2, 3), 5, "float16")}),
    ("aten.mul.Tensor", {"self": Input(0), "other": Result(0)}),
    ("aten.add.Tensor", {"self": tensor((2, 3), 6, "float16"), "other": HELD}),
    returns=(Result(1), Input(1), HELD, Result(2)),
)


def test_an_input_is_taken_again_and_returned() -> None:
    assert Invocation.from_json(RESIDUAL.json) == RESIDUAL
    assert "return %1, input 1, weight:float16[2,3], %2" in str(RESIDUAL)
    x, y = build_tensors(RESIDUAL)
    product, same, held, total = run_reference(RESIDUAL).expected
    assert np.array_equal(product, x * -x)
    assert np.array_equal(same, y)
    assert np.array_equal(total, y + torch.from_numpy(held))
    reference = run_reference(RESIDUAL)
    found = DYNAMO_TO_ORT.run_call(RESIDUAL, reference)
    assert found.run.passes
    assert found.run.outputs is not None
    assert is_chain_of_right_calls(DYNAMO_TO_ORT, reference, found.run.outputs)
    assert len(list(RESIDUAL.tensors())) == 2


def test_an_input_must_be_described_before_it_is_taken() -> None:
    with pytest.raises(InvalidInvocation, match="takes input 0 before it is described"):
        Program.of(program(("aten.mul.Tensor", {"self": Input(0), "other": tensor((2,))})))


def test_equal_inputs_are_shared_and_described_again() -> None:
    described = unshare_inputs(Program.of(RESIDUAL))
    assert len(list(described.invocation.tensors())) == 3
    assert described.returns[1] == Input(2)
    assert share_inputs(described).invocation == RESIDUAL
    # Zeros differ by their signs.
    zeros = program(("aten.add.Tensor", {"self": given([0.0], (1,)), "other": given([-0.0], (1,))}))
    assert len(list(share_inputs(Program.of(zeros)).invocation.tensors())) == 2


@pytest.mark.parametrize("name", sampled(load_patterns(), every=3))
def test_a_pattern_draws_programs_that_pytorch_takes(name: str) -> None:
    load_cases()
    found, rejected, ids = load_patterns()[name], 0, Counter[str]()
    for index in range(40):
        drawn = draw_program(found, 3, index)
        # A bound may be NaN, which equals nothing.
        assert drawn.json == draw_program(found, 3, index).json == Invocation.from_json(drawn.json).json
        ids[drawn.structure_id] += 1
        try:
            run_reference(drawn)
        except Exception:
            rejected += 1
    assert rejected <= 4
    assert len(ids) >= 12


def _changed(call: int, **arguments: Any) -> Invocation:
    found = Program.of(NORMALISED)
    calls = list(found.calls)
    calls[call] = Invocation(calls[call].overload, tuple({**dict(calls[call].arguments), **arguments}.items()))
    return Program(found.name, tuple(calls), found.returns).invocation


def test_two_patterns_of_one_name_are_refused() -> None:
    def gelu(p: ProgramDraw) -> list[Result]:
        return [p.call("aten.gelu.default", self=p.input((2,)))]

    load_patterns()
    # The name of the function is that of the known one, as in another file.
    gelu.__qualname__ = "gelu"
    with pytest.raises(ValueError, match="'gelu'"):
        pattern("gelu", source="a test")(gelu)


def test_another_pattern_takes_a_result() -> None:
    drawn = [Program.of(draw_program(load_patterns()["program.quick-gelu"], 3, index)) for index in range(60)]
    longer = [p for p in drawn if any(part in c.overload for c in p.calls for part in ("conv", "norm", "softmax"))]
    assert longer
    for whole in longer:
        gates = [i for i, call in enumerate(whole.calls) if call.overload == "aten.sigmoid.default"]
        assert any(result.call > gates[0] for call in whole.calls for result in results_in(call))


@pytest.mark.parametrize(
    "altered",
    [
        _changed(1, eps=1e-3),
        _changed(1, bias=Weight(tensor((3,), 5)), running_mean=Weight(tensor((3,), 4))),
        _changed(0, padding=(1, 1), dilation=(3, 3)),
    ],
    ids=["epsilon", "swapped", "dilation"],
)
def test_a_change_of_one_call_is_seen(altered: Invocation) -> None:
    load_cases()
    reference = run_reference(NORMALISED)
    assert compare(reference.judge, reference, reference.expected).problem is None
    assert compare(reference.judge, reference, run_reference(altered).expected).problem is not None


def test_a_program_that_amplifies_roundings_is_not_held_to_them() -> None:
    # (x + 1e6) - 1e6: what is left of x has lost 20 bits, in whatever order it is computed.
    amplifying = program(
        ("aten.add.Scalar", {"self": given([0.1, 0.7, -0.3], (3,)), "other": 1e6}),
        ("aten.sub.Scalar", {"self": Result(0), "other": 1e6}),
    )
    reference = run_reference(amplifying)
    assert reference.truth is not None
    assert reference.truth[0] is not None
    exact = reference.truth[0].astype(np.float32)
    assert compare(reference.judge, reference, [exact + np.float32(0.03)]).problem is None
    assert compare(reference.judge, reference, [exact + np.float32(3.0)]).problem == "values"


#: An average pool whose divisor is dropped, between two calls that are right.
DIVIDED = program(
    ("aten.neg.default", {"self": tensor((1, 1, 4, 4))}),
    ("aten.avg_pool2d.default", {"self": Result(0), "kernel_size": (2, 2), "divisor_override": 3}),
    ("aten.relu.default", {"self": Result(1)}),
)


def test_a_failure_of_one_call_has_the_place_of_that_call() -> None:
    decision = diagnosis_of(trial_of(DIVIDED))
    assert Invocation.from_json(decision.call).overload == "aten.avg_pool2d.default"
    assert decision.rule == "ignored-argument"
    assert decision.facts[CALL_ALONE] == "aten.avg_pool2d.default"


#: Two calls that are wrong, and share nothing.
APART = program(
    ("aten.avg_pool2d.default", {"self": tensor((1, 1, 4, 4)), "kernel_size": (2, 2), "divisor_override": 3}),
    (
        "aten.multilabel_margin_loss.default",
        {"self": given([0.1, 0.2, 0.4, 0.8], (1, 4)), "target": given([-1, 0, 0, 0], (1, 4), "int64")},
    ),
    ("aten.relu.default", {"self": Result(0)}),
    returns=(Result(2), Result(1)),
)


def test_outputs_that_share_no_call_are_found() -> None:
    assert disjoint_outputs(Program.of(APART)) == [(0,), (1,)]
    assert disjoint_outputs(Program.of(NORMALISED)) == [(0, 1)]
    assert calls_behind(Program.of(APART), (0,)) == {0, 2}


def test_disjoint_halves_of_a_program_are_blamed_apart() -> None:
    row = verdict_of(APART)
    first, second = (json.loads(problem["diagnosis"]) for problem in json.loads(row.problems))
    assert [d["facts"][CALL_ALONE] for d in (first, second)] == [
        "aten.avg_pool2d.default",
        "aten.multilabel_margin_loss.default",
    ]
    assert [problem["blame"] for problem in json.loads(row.problems)] == ["converter", "pytorch"]


EMPTIED = program(
    ("aten.sin.default", {"self": tensor((2, 3))}),
    ("aten.unsqueeze.default", {"self": Result(0), "dim": 1}),
    ("aten.expand.default", {"self": Result(1), "size": (-1, 0, -1)}),
    ("aten.relu.default", {"self": Result(2)}),
    ("aten.neg.default", {"self": Result(3)}),
)


def test_a_failure_of_no_single_call_is_the_compositions() -> None:
    decision = diagnosis_of(trial_of(EMPTIED))
    assert decision.call == ""
    assert decision.blame == "backend"
    assert decision.facts[COMPOSED] == 5
    assert states(decision, "runtime-passes/right", passes=["ExpandElimination"])


def test_a_call_that_fails_in_another_way_is_not_the_reason() -> None:
    # ONNX Runtime has no Erf in float64. That a Mul before it is as exact as float32 only is another defect.
    failing = program(
        ("aten.mul.Scalar", {"self": given([0.3, -1.7], (2,), "float64"), "other": 0.7071067811865475}),
        ("aten.erf.default", {"self": Result(0)}),
    )
    unsupported = trial_of(failing, outcome=Outcome.UNSUPPORTED)
    decision = diagnosis_of(unsupported)
    assert decision.facts[CALL_ALONE] == "aten.erf.default"


#: -(-n // 2), of which the exporter makes a division that rounds towards zero.
HALVED = program(
    ("python.size.int", {"self": tensor((4, 2)), "dim": 0}),
    ("python.neg.int", {"a": Result(0)}),
    ("python.floordiv.int", {"a": Result(1), "b": 2}),
    ("python.neg.int", {"a": Result(2)}),
    ("aten.new_ones.default", {"self": tensor((4, 2), 2), "size": (Result(3), 2)}),
)


def test_arithmetic_on_sizes_flows_between_calls() -> None:
    assert torch_call(HALVED).splitlines()[1:5] == ["v0 = x0.shape[0]", "v1 = -v0", "v2 = v1 // 2", "v3 = -v2"]
    larger = HALVED.map_tensors(lambda spec: replace(spec, shape=(5, 2)))
    assert run_reference(larger).expected[0].shape == (3, 2)
    decision = diagnosis_of(trial_of(HALVED, larger, dynamic=True))
    assert decision.call == ""
    assert decision.blame == "converter"
    assert decision.facts[COMPOSED] == 5


#: A size as a factor: a tensor while TorchScript traces, which the overload for numbers rejects.
SIZED = program(
    ("python.size.int", {"self": tensor((4, 2)), "dim": 0}),
    ("aten.mul.Scalar", {"self": tensor((4, 2), 2), "other": Result(0)}),
)


def test_a_size_that_is_taken_as_a_number_is_written_as_people_do() -> None:
    assert "        v1 = torch.mul(x1, v0)" in source_of(SIZED).module()
    larger = SIZED.map_tensors(lambda spec: replace(spec, shape=(5, 2)))
    structure = CallStructure(SIZED, (SIZED, larger), outputs=1)
    model = converter_called("torchscript").convert(structure.request(Route(converter="torchscript", dynamic=True)))
    reference = run_reference(larger)
    outputs = start("ort-cpu").load(model, None).run(structure.feeds(model, reference.feeds))
    np.testing.assert_allclose(outputs[0], reference.expected[0], rtol=1e-6)


def test_what_is_changed_in_place_is_fed_as_it_was() -> None:
    changed = program(
        ("aten.alias.default", {"self": given([1.0, 2.0], (2,))}), ("aten.add_.Scalar", {"self": Result(0), "other": 3})
    )
    reference = run_reference(changed)
    assert reference.feeds[0].tolist() == [1.0, 2.0]
    assert reference.expected[0].tolist() == [4.0, 5.0]
    assert reference.truth is not None
    assert compare(reference.judge, reference, reference.expected).problem is None


def test_a_rule_that_breaks_a_model_is_named() -> None:
    # Bounds of a higher rank than the value make the result's rank, which a Clip does not.
    bounded = program(
        ("aten.maximum.default", {"self": tensor((3,)), "other": Weight(given([-1.0], (1, 1)))}),
        ("aten.minimum.default", {"self": Result(0), "other": Weight(given([1.0], (1, 1)))}),
    )
    rejected = trial_of(bounded, outcome=Outcome.ERROR, stage=Stage.CHECK)
    decision = diagnosis_of(rejected)
    assert decision.rule == "optimiser-breaks-graph"
    assert states(decision, "exporter-passes/right", passes=["FuseMaxMinToClip"])


def test_a_rule_comes_before_the_pass_that_it_needs() -> None:
    clipped = program(
        ("aten.clamp.default", {"self": given([0.3, 5.0], (2,)), "min": -3.0, "max": -1.0}),
        ("aten.relu.default", {"self": Result(0)}),
    )
    decision = diagnosis_of(trial_of(clipped))
    assert decision.rule == "optimiser-breaks-graph"
    assert states(decision, "exporter-passes/right", passes=["FuseSuccessiveReluClip"])


#: The rule that joins the two bounds names one of them after the value that is clipped.
NAMED = program(
    ("aten.neg.default", {"self": tensor((2, 3))}),
    ("aten.clamp.default", {"self": Result(0), "min": -1.0, "max": 2.0}),
    ("aten.relu.default", {"self": Result(1)}),
    ("aten.add.Tensor", {"self": Result(2), "other": Weight(tensor((3,), 2), name="neg_min")}),
)


def test_a_weight_is_held_under_its_name() -> None:
    assert Invocation.from_json(NAMED.json) == NAMED
    assert [plainer for plainer in plainer_programs(NAMED) if plainer.json == NAMED.json.replace(',"neg_min"', "")]
    assert any('register_buffer("neg_min"' in line for line in source_of(NAMED).module())
    renamed = Invocation.from_json(NAMED.json.replace("neg_min", "shift"))
    structure = CallStructure(renamed, outputs=1)
    model = converter_called("dynamo").convert(structure.request(Route(converter="dynamo")))
    assert isinstance(model, onnx.ModelProto)
    assert "shift" in {tensor.name for tensor in model.graph.initializer}
    session = start("ort-cpu").load(model, None)
    reference = run_reference(renamed)
    np.testing.assert_allclose(session.run(structure.feeds(model, reference.feeds))[0], reference.expected[0])


def test_a_name_that_collides_is_a_defect_of_the_pass_that_gives_it_again() -> None:
    rejected = trial_of(NAMED, outcome=Outcome.ERROR, stage=Stage.CHECK)
    decision = diagnosis_of(rejected)
    assert decision.rule == "optimiser-breaks-graph"
    assert states(decision, "exporter-passes/right", passes=["FuseSuccessiveReluClip"])


def test_a_program_inherits_from_the_same_structure_alone() -> None:
    def clipped(high: float, *values: float) -> Invocation:
        return program(
            ("aten.clamp.default", {"self": given(list(values), (2,)), "min": -3.0, "max": high}),
            ("aten.relu.default", {"self": Result(0)}),
        )

    # The same graph but for a number, on which it depends what an optimiser does to it.
    calls = [clipped(high, 0.3, 5.0) for high in (-1.0, -1.5, -2.0, -2.5, -2.75)]
    unit = literal_unit(calls, backends=["ort-cpu"])
    with Supervisor(timeout=60) as supervisor:
        ((source, groups),) = find_groups(unit, supervisor, print)
        verdicts = [v for part in run_part(unit, supervisor, source, groups) for v in part]
    diagnoses = [Diagnosis.from_row(vars(verdict)) for verdict in verdicts]
    assert [verdict.place for verdict in verdicts] == ["optimiser, FuseSuccessiveReluClip"] * len(calls)
    assert [diagnosis.inherited_from for diagnosis in diagnoses if diagnosis] == [""] * len(calls)


def test_a_program_is_written_as_lines_of_python() -> None:
    split = program(
        ("aten.split.Tensor", {"self": tensor((4,)), "split_size": 2}),
        ("aten.cat.default", {"tensors": (Result(0, 1), Weight(tensor((2,), 3)))}),
    )
    variables: dict[str, Any] = {"torch": torch}
    *lines, returned = torch_call(split).splitlines()
    exec("\n".join(lines), variables)
    (expected,) = run_reference(split).expected
    assert np.array_equal(eval(returned, variables).numpy(), expected)
    *lines, returned = torch_call(RESIDUAL).splitlines()
    exec("\n".join(lines), variables)
    exec("\n".join(source_of(RESIDUAL).module()), variables)
    answers = run_reference(RESIDUAL).expected
    for found in (eval(returned, variables), variables["Model"]()(*build_tensors(RESIDUAL))):
        assert all(np.array_equal(got, answer) for got, answer in zip(found, answers, strict=True))


def test_the_calls_of_a_program_get_its_values() -> None:
    load_cases()
    calls = [call for call in run_calls(DYNAMO_TO_ORT, NORMALISED) if call is not None]
    alone = [call.reference.invocation.overload for call in calls]
    assert alone == [call.overload for call in Program.of(NORMALISED).calls]
    whole = to_numpy(bind(NORMALISED)(build_tensors(NORMALISED))[0])
    assert all(call.run.passes for call in calls)
    assert calls[-1].run.outputs is not None
    np.testing.assert_allclose(calls[-1].run.outputs[0], whole, rtol=1e-5)


def test_what_each_call_may_leave_open_a_program_may_too() -> None:
    # The squares of a layer norm overflow: its result is NaN in PyTorch, zero in ONNX Runtime.
    load_cases()
    overflowing = program(
        ("aten.add.Tensor", {"self": given([-4.5e20, -3.4, 2.3, 1.8e12], (1, 4)), "other": given([0.0] * 4, (1, 4))}),
        ("aten.layer_norm.default", {"input": Result(0), "normalized_shape": (4,)}),
    )
    reference = run_reference(overflowing)
    last = list(run_calls(DYNAMO_TO_ORT, overflowing))[-1]
    assert last is not None
    got = last.run.outputs
    assert got is not None
    assert compare(reference.judge, reference, got).problem is not None
    assert is_chain_of_right_calls(DYNAMO_TO_ORT, reference, got)
    assert not is_chain_of_right_calls(DYNAMO_TO_ORT, reference, [got[0] + 1])


def test_a_chain_with_a_wrong_call_is_not_right() -> None:
    load_cases()
    reference = run_reference(DIVIDED)
    calls = list(run_calls(DYNAMO_TO_ORT, DIVIDED))
    assert [call is not None and call.run.passes for call in calls] == [True, False, True]
    assert not is_chain_of_right_calls(DYNAMO_TO_ORT, reference, reference.expected)


def test_steps_of_shrinking_are_sound_and_plainer() -> None:
    steps = list(plainer_programs(NORMALISED))
    assert len({step.case_id for step in steps}) > 8
    for step in (*steps, *plainer_programs(RESIDUAL)):
        run_reference(step)
    assert min(len(Program.of(step).calls) for step in steps) == 1


@pytest.mark.slow
@pytest.mark.slowest(60)
def test_a_run_of_programs_is_recorded_shrunk_and_written_as_a_script(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--pattern", "reshapes", "--backend", "ort-cpu", "--examples", "56", "--shapes", "static", "--record-only")
    done = run_harness(*words, "--results-dir", run, cwd=tmp_path)
    assert done.returncode == 0, output(done)
    assert "by the composition of calls that do not fail so by themselves" in output(done)
    found = rows(run)
    assert {row["overload"] for row in found} == {"program.reshapes"}
    assert {row["source"] for row in found} == {"programs", "redrawn"}
    assert sum(row["outcome"] == "pass" for row in found) > len(found) / 2
    assert {row["family"] for row in found} == {"programs"}
    base = tmp_path / "base"
    write_baseline(base, baseline_of_run(run))
    assert {key[0] for key in read_baseline(base).cells} == {"program.reshapes"}
    composed = [f for f in failures(run) if f.outcome == "mismatch" and f.signature == "shape"]
    assert composed
    (minimal,) = shrink_run(run, seconds=8, per_failure=8, chosen=composed[:1])
    assert len(Program.of(Invocation.from_json(minimal.invocation)).calls) <= 3
    script = write_script(find_failure(run, minimal.case_id))
    assert "class Model(torch.nn.Module):" in script
    assert run_text(script).reproduces


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--pattern", "conv-b"], "--pattern conv-b: no such pattern; did you mean conv-bn"),
        (["--programs", "--source", "corpus"], "--programs and --source both select the cases"),
        (["--programs", "--model", "resnet5"], "--model resnet5: no such model; did you mean resnet50"),
        (["--programs", "--model", "resnet18", "--op", "celu"], "no program of 2 to 6 calls that contains celu"),
        (["--pattern", "gelu", "--model", "resnet18"], "--pattern and --model both say what programs are drawn from"),
        (["--pattern", "gelu", "--op", "celu"], "--pattern names programs, and --op operators that programs contain"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, words: list[str], line: str) -> None:
    done = run_harness(*words, cwd=tmp_path)
    assert done.returncode == 4
    assert line in output(done)


@pytest.mark.slow
def test_a_run_of_programs_records_the_passes_that_change_them(tmp_path: Path) -> None:
    words = ("--pattern", "conv-bn", "--pattern", "gelu", "--examples", "24", "--shapes", "static", "--record-only")
    run_harness(*words, "--no-blame", "--results-dir", tmp_path / "run")
    recorded = rows(tmp_path / "run")
    fused = {row["overload"] for row in recorded if "FuseBatchNormIntoConv" in row["exporter_passes"].split(", ")}
    assert fused == {"program.conv-bn"}
    fused = {row["overload"] for row in recorded if "GeluFusionL1" in row["backend_passes"].split(", ")}
    assert fused == {"program.gelu"}


@pytest.mark.slow
def test_programs_that_passes_change_are_drawn_again(tmp_path: Path) -> None:
    words = ("--pattern", "conv-bn", "--examples", "24", "--shapes", "static", "--record-only", "--no-blame")
    run_harness(*words, "--results-dir", tmp_path / "run")
    by_source: dict[str, dict[str, str]] = {"programs": {}, "redrawn": {}}
    for row in rows(tmp_path / "run"):
        by_source[row["source"]][row["structure_id"]] = row["exporter_passes"]
    drawn, redrawn = by_source["programs"], by_source["redrawn"]
    assert not drawn.keys() & redrawn.keys()
    assert len(redrawn) >= len(drawn) / 3
    assert "FuseBatchNormIntoConv" in " ".join(redrawn.values())


@pytest.mark.parametrize(
    ("words", "converters"),
    [
        (["--programs"], {"dynamo", "torchscript"}),
        (["--programs", "--converter", "dynamo"], {"dynamo"}),
        (["--pattern", "gelu"], {"dynamo"}),
    ],
    ids=["all", "one converter", "one pattern"],
)
def test_a_run_of_all_programs_uses_both_exporters(words: list[str], converters: set[str]) -> None:
    collected = run_harness(*words, "--collect-only", "-q").stdout
    assert {name for name in ("dynamo", "torchscript") if f"[program.gelu-{name}]" in collected} == converters


#: A change in place of a view, and of what a view was taken from; the call of each that shares memory.
CHANGED_IN_PLACE = {
    "of-a-view": (
        program(
            ("aten.neg.default", {"self": tensor((3, 4))}),
            ("aten.view.default", {"self": Result(0), "size": (2, 6)}),
            ("aten.zero_.default", {"self": Result(1)}),
            ("aten.mul.Scalar", {"self": Result(0), "other": 2.0}),
            returns=(Result(3), Result(1)),
        ),
        ("aten.view.default", "aten.zero_.default"),
    ),
    "of-a-part": (
        program(
            ("aten.clone.default", {"self": tensor((4, 5))}),
            ("aten.select.int", {"self": Result(0), "dim": 1, "index": 1}),
            ("aten.clamp_.default", {"self": Result(1), "min": -0.5, "max": 0.5}),
            ("aten.mul.Scalar", {"self": Result(0), "other": 2.0}),
            returns=(Result(3), Result(0)),
        ),
        ("aten.select.int", "aten.clamp_.default"),
    ),
}


@pytest.mark.parametrize("name", CHANGED_IN_PLACE)
def test_a_change_in_place_that_is_lost_is_named_with_its_alias(name: str) -> None:
    changed, (alias, in_place) = CHANGED_IN_PLACE[name]
    decision = diagnosis_of(trial_of(changed, converter="torchscript"))
    assert (decision.blame, decision.rule) == ("converter", "takes-alias-for-copy")
    assert states(decision, "alias-as-copy/same", alias=alias, in_place=in_place)
