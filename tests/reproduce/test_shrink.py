"""Failures are shrunk to the smallest call that fails in the same way, and what it depends on is said."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import entered, typed
from harness_runs import (
    ROOT,
    literal_unit,
    output,
    record_of,
    recorded,
    row_of,
    run_harness,
    unary,
    vector,
)
from hypothesis import given, settings, strategies as st
from planted._guilty import VALUE
from recorded_run import conformance

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Argument, Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.core.route import Route
from harness.core.tensors import build_tensor
from harness.generate.regressions.corpus_store import Corpus
from harness.generate.sources.recorded import Replayed
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.record import store
from harness.record.json_lines import Minimal, append_line, read_minimal
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter
from harness.reproduce import edits as tensors
from harness.reproduce.edits import Domains, domains_of
from harness.reproduce.plainness import cost, elements
from harness.reproduce.shrink_session import failures, shrink_after_run, shrink_run
from harness.reproduce.shrinker import Budget, Evaluator, Test, reductions, shrink

pytestmark = pytest.mark.slowest(17)


def arguments(minimal: Minimal) -> dict[str, Any]:
    return dict(Invocation.from_json(minimal.invocation).arguments)


def literals(minimal: Minimal) -> list[tuple[Any, ...]]:
    specs = Invocation.from_json(minimal.invocation).tensors()
    return [spec.values.values for spec in specs if isinstance(spec.values, Literal)]


def failed(signature: str = "values", outcome: Outcome = Outcome.MISMATCH, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, "stage": Stage.COMPARE, "signature": signature, **more}


# Planted defects


def drawn(shape: tuple[int, ...], style: str, strides: tuple[int, ...] = ()) -> TensorSpec:
    """A tensor as the generator draws them."""
    return TensorSpec(shape, "float32", strides or contiguous_strides(shape), 0, Recipe(("any",), style, 5))


#: Operator → a call that shows its planted defect, how it fails, and the elements and the property that do.
PLANTED: dict[str, tuple[dict[str, Argument], str, int, str]] = {
    "aten.add.Tensor": (
        {"self": drawn((3, 1, 4), "plain", (1, 1, 3)), "other": drawn((2, 1), "plain"), "alpha": -2.5},
        *("values", 2, "fails with alpha=2.0, 0.0 and 3.0; not with 1"),
    ),
    "aten.relu.default": (
        {"self": drawn((5, 7), "special")},
        *("NaN positions", 1, "fails only where self holds NaN"),
    ),
    "aten.round.default": (
        {"self": drawn((2, 3, 3), "halves")},
        *("values", 1, "fails only where self holds a fraction"),
    ),
    "aten.flip.default": (
        {"self": drawn((3, 2, 5), "plain"), "dims": (0, -1)},
        *("values", 2, "fails with dims=["),
    ),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> list[Minimal]:
    """A failure of each operator with a planted defect, shrunk."""
    run = tmp_path_factory.mktemp("shrink")
    rows = [
        row_of(Invocation(overload, tuple(given.items())), **failed(signature, converter="planted-wrong"))
        for overload, (given, signature, *_) in PLANTED.items()
    ]
    recorded(run, rows)
    shrunk = conformance("shrink", run, "--budget", "60", "--json", cwd=ROOT)
    assert shrunk.returncode == 0, output(shrunk)
    minimals = read_minimal(run)
    printed = [json.loads(line)["minimal_id"] for line in shrunk.stdout.splitlines()]
    assert printed == [m.minimal_id for m in minimals]
    assert {(m.overload, m.signature) for m in minimals} == {(r.overload, r.signature) for r in rows}
    return minimals


#: Nearly covered by the others.
ADD = pytest.param("aten.add.Tensor", marks=pytest.mark.thorough)


@pytest.mark.parametrize("overload", [ADD if name == ADD.values[0] else name for name in PLANTED])
def test_a_planted_defect_is_shrunk_to_its_core(overload: str, planted: list[Minimal]) -> None:
    _, _, size, sentence = PLANTED[overload]
    (smallest,) = (m for m in planted if m.overload == overload)
    assert smallest.finished
    assert smallest.elements == size
    assert any(said.startswith(sentence) for said in smallest.matters), smallest.matters
    # Nothing is left that is neither needed nor plain.
    assert all(spec.dtype == "float32" for spec in Invocation.from_json(smallest.invocation).tensors())


def test_values_are_the_plainest_that_show_it(planted: list[Minimal]) -> None:
    by_name = {m.overload: m for m in planted}
    assert arguments(by_name["aten.add.Tensor"])["alpha"] == 2
    assert literals(by_name["aten.add.Tensor"]) == [(0.0,), (1.0,)]
    assert literals(by_name["aten.round.default"]) == [(0.5,)]
    ((value,),) = literals(by_name["aten.relu.default"])
    assert math.isnan(value)


# Real defects


def divisor_override() -> Invocation:
    data = TensorSpec((2, 3, 7, 5), "float32", (105, 35, 5, 1), 0, Recipe(("any",), "plain", 7))
    return Invocation(
        "aten.avg_pool2d.default",
        (
            ("self", data),
            ("kernel_size", (3, 2)),
            ("stride", (2, 1)),
            ("padding", (1, 0)),
            ("ceil_mode", False),
            ("count_include_pad", True),
            ("divisor_override", 3),
        ),
    )


def test_a_converter_that_drops_divisor_override(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [divisor_override()], **failed())
    (minimal,) = shrink_run(run, seconds=60)
    given = arguments(minimal)
    assert given.keys() == {"self", "kernel_size", "divisor_override"}
    assert minimal.elements == 1
    assert minimal.finished
    assert any(said.startswith("fails with divisor_override=2") for said in minimal.matters)
    assert read_minimal(run) == [minimal]
    again = literal_unit([Invocation.from_json(minimal.invocation)], backends=["ort-cpu"])
    with Supervisor() as supervisor:
        (verdict,) = (v for verdicts in run_unit(again, supervisor) for v in verdicts)
    assert (verdict.stage, verdict.outcome, verdict.signature) == (
        Stage.COMPARE,
        Outcome.MISMATCH,
        "values",
    )
    assert verdict.case_id == minimal.minimal_id
    assert verdict.blame == minimal.blame


def test_what_is_finished_is_not_done_again_and_what_is_begun_goes_on(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [divisor_override()], **failed())
    (first,) = shrink_run(run, seconds=60)
    assert list(shrink_run(run, seconds=60)) == []
    (again,) = shrink_run(run, seconds=60, again=True)
    assert again.invocation == first.invocation
    begun = Minimal(**{**vars(first), "finished": False, "evaluations": 1000})
    append_line(run, begun)
    (finished,) = shrink_run(run, seconds=60)
    assert finished.finished
    assert finished.invocation == first.invocation
    assert 1000 < finished.evaluations < 1000 + first.evaluations


def test_a_budget_is_kept_to(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [divisor_override()], **failed())
    assert list(shrink_run(run, seconds=0)) == []
    place = Unit(overload="aten.avg_pool2d.default", route=Route(converter="dynamo"), backends=("ort-cpu",))
    subject = Replayed(divisor_override())
    with Supervisor() as supervisor:
        evaluator = Evaluator(place, supervisor, Budget(60, evaluations=9))
        (verdict,) = evaluator.verdicts([subject])
        assert verdict is not None
        smallest = shrink(subject, Test(evaluator, verdict), domains_of(subject.invocation))
        assert evaluator.evaluations == 9
        assert cost(smallest.invocation) <= cost(subject.invocation)
        late = Evaluator(place, supervisor, Budget(0))
        unchanged = shrink(subject, Test(late, verdict), domains_of(subject.invocation))
        assert (unchanged, late.evaluations) == (subject, 0)


def test_a_failure_that_is_gone_is_reported_as_gone(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [unary("aten.neg.default", [1.0, 2.0])], **failed())
    said: list[str] = []
    assert list(shrink_run(run, seconds=60, on_skipped=lambda failure, why: said.append(why))) == []
    assert said == ["it does not fail again as it was recorded: pass at compare"]


def test_a_crash_is_shrunk_without_the_session_dying(tmp_path: Path) -> None:
    call = unary("aten.neg.default", [1.5, 2.0, VALUE, -3.0, 0.25])
    crash = failed("process killed by SIGSEGV", Outcome.CRASH, backend="onnx-api:planted.segfault")
    run = record_of(tmp_path / "run", [call], **{**crash, "stage": Stage.RUN})
    (minimal,) = shrink_run(run, seconds=60)
    assert literals(minimal) == [(VALUE,)]
    assert minimal.outcome is Outcome.CRASH
    assert minimal.finished


# What is asked for


def test_operators_take_turns_and_the_worst_comes_first(tmp_path: Path) -> None:
    info = RunInfo.begin(seed=0, options={})
    cases = [
        ("aten.a.default", Outcome.ERROR, "one", 1),
        ("aten.b.default", Outcome.MISMATCH, "one", 3),
        ("aten.b.default", Outcome.MISMATCH, "two", 2),
        ("aten.c.default", Outcome.MISMATCH, "one", 1),
    ]
    with RunWriter(tmp_path, info) as writer:
        for overload, outcome, signature, count in cases:
            calls = [unary(overload, [float(n)] * (3 + n), "float64") for n in range(count)]
            fields = failed(f"{outcome} {signature}", outcome)
            writer.write([row_of(call, **fields) for call in calls])
    store.finish(tmp_path, 1)
    found = failures(tmp_path)
    assert [(f.overload, f.signature) for f in found] == [
        ("aten.b.default", "mismatch one"),
        ("aten.c.default", "mismatch one"),
        ("aten.b.default", "mismatch two"),
        ("aten.a.default", "error one"),
    ]
    assert all(elements(Invocation.from_json(f.invocation)) == 3 for f in found)


def test_a_run_that_fails_shrinks_what_failed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    few = ("--op", "aten.avg_pool2d", "--dtype", "float32", "--examples", "32", "--shrink", "40")
    asked = ("--source", "corpus", "--source", "generated")
    done = run_harness("--results-dir", run, *few, *asked, cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    assert "run `conformance shrink` to continue" in done.stdout
    minimals = {(m.overload, m.stage, m.outcome, m.signature) for m in read_minimal(run)}
    assert minimals == {(f.overload, f.stage, f.outcome, f.signature) for f in failures(run)}
    # The next run begins with them.
    kept = Corpus.default(tmp_path).read("aten.avg_pool2d.default").entries
    assert {m.minimal_id for m in read_minimal(run)} == {
        entry.invocation.case_id for entry in kept if entry.origin == "minimal"
    }


def test_a_failure_of_a_rule_is_shrunk_with_the_rule(tmp_path: Path) -> None:
    rules = tmp_path / "my_rules.py"
    rules.write_text(
        "from harness.convert.rules import torchscript\n\n\n"
        '@torchscript("aten::celu")\n'
        "def celu(g, input, alpha):\n"
        '    return g.op("Celu", input, alpha_f=1.0)\n'
    )
    few = ("--dtype", "float32", "--examples", "64", "--no-blame", "--shrink", "0")
    done = run_harness("--results-dir", tmp_path / "run", "--rules", rules, *few)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    elsewhere = rules.rename(tmp_path / "elsewhere.py")
    plain = entered("shrink", tmp_path / "run")
    assert "the rule my_rules.py:celu took part: give its" in plain.output
    elsewhere.rename(rules)
    # Where it was it is found again.
    typed("shrink", tmp_path / "run", "--budget", "20")
    assert max(m.elements for m in read_minimal(tmp_path / "run")) <= 2
    assert any("alpha" in said for m in read_minimal(tmp_path / "run") for said in m.matters)


def test_the_command_finds_cases_and_suggests_near_ones(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [divisor_override()], **failed())
    case_id = divisor_override().case_id
    done = typed("shrink", run, "--case", case_id[:8])
    assert case_id in done.output
    assert "divisor_override=2" in done.output
    assert "1 failure shrunk of 1" in done.output
    done = typed("shrink", run, "--case", case_id[:-2] + "zz", status=2)
    assert case_id in done.output
    done = typed("shrink", run, "--op", "avg_pool2", status=1)
    assert "aten.avg_pool2d.default" in done.output


# Edits


def _transposed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return contiguous_strides(shape[::-1])[::-1]


_SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
_LAID_OUT = st.tuples(_SHAPES, st.sampled_from((contiguous_strides, _transposed)), st.integers(0, 2)).map(
    lambda drawn: (drawn[0], (drawn[1](drawn[0]), drawn[2]))
)


def laid_out(shape: Sequence[int], strides: Sequence[int], offset: int) -> TensorSpec:
    return TensorSpec(tuple(shape), "float32", tuple(strides), offset, Recipe(("any",), "mixed", 3))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_LAID_OUT, st.data())
def test_edits_of_a_tensor_do_to_its_values_what_torch_does(drawn: Any, data: st.DataObject) -> None:
    shape, (strides, offset) = drawn
    spec = laid_out(shape, strides, offset)
    before = build_tensor(spec)

    def same(changed: TensorSpec, wanted: torch.Tensor) -> None:
        torch.testing.assert_close(build_tensor(changed), wanted, rtol=0, atol=0, equal_nan=True)

    for edit in (tensors.literal, tensors.contiguous, tensors.compact):
        same(edit(spec), before)
    assert tensors.is_plain_layout(tensors.contiguous(spec))
    assert tensors.compact(spec).storage_size <= spec.storage_size
    dim = data.draw(st.integers(0, len(shape) - 1))
    first = data.draw(st.integers(0, shape[dim] - 1))
    last = data.draw(st.integers(first, shape[dim] - 1))
    kept = list(range(first, last + 1))
    same(tensors.keep(spec, dim, kept), before.narrow(dim, first, len(kept)))
    same(tensors.drop_dim(spec, dim), before.select(dim, 0))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_reductions_keep_to_what_the_operator_allows(data: st.DataObject) -> None:
    spec = TensorSpec((3,), "float32", (1,), 0, Recipe(("range", 0.5, 2.5), "plain", 5))
    original = Invocation("aten.add.Tensor", (("self", spec), ("other", vector([1.5, 2.5, 3.5])), ("alpha", 3)))
    written = original.map_tensors(tensors.literal)
    reduced = data.draw(reductions(written, domains_of(original)))
    own = dict(reduced.arguments)["self"]
    assert isinstance(own, TensorSpec)
    assert all(0.5 <= v <= 2.5 for v in tensors.numbers(own))  # type: ignore[operator]
    assert elements(reduced) <= elements(original)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_wide_unsigned_integers_are_cut_like_others(dtype: str) -> None:
    spec = TensorSpec((4,), dtype, (1,), 0, Literal((1, 2, 3, 2**16 - 1)))
    assert tensors.keep(spec, 0, [0, 3]).values == Literal((1, 2**16 - 1))


def test_a_failure_that_cannot_be_shrunk_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [divisor_override(), unary("aten.neg.default", [1.0])]
    run = record_of(tmp_path / "run", calls, **failed())

    def broken(invocation: Invocation) -> Domains:
        if invocation.overload == "aten.avg_pool2d.default":
            raise NotImplementedError("no such dtype")
        return domains_of(invocation)

    monkeypatch.setattr("harness.reproduce.shrink_session.domains_of", broken)
    skipped: dict[str, str] = {}
    found = shrink_run(run, seconds=60, on_skipped=lambda f, why: skipped.update({f.overload: why}))
    assert list(found) == []
    assert skipped["aten.avg_pool2d.default"].endswith("please report it: NotImplementedError: no such dtype")
    assert "does not fail again" in skipped["aten.neg.default"]
    said = shrink_after_run(run, 60, timeout=60, memory_limit=2**32)
    assert "please report it: NotImplementedError" in said
