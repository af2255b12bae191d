"""`conformance diff`: two runs side by side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from commands import answered, entered, typed
from harness_runs import recorded, row_of, unary

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import compare_runs
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

CASES = [unary("aten.relu.default", [float(i)]) for i in range(8)]


def verdict(invocation: Invocation, outcome: Outcome = Outcome.PASS, **more: Any) -> Verdict:
    fields: dict[str, Any] = {"family": "activation", "converter_version": "1", "opset": 18, "backend_version": "1"}
    return row_of(invocation, outcome=outcome, **{**fields, **more})


def run(directory: Path, verdicts: list[Verdict], version: str = "1.0", **options: Any) -> Path:
    planned = {one.overload: "dynamo" for one in verdicts}
    info = RunInfo.begin(
        seed=0, options=options, versions={"backend ort-cpu": version}, planned=(planned,) if options else ()
    )
    with RunWriter(directory, info) as writer:
        writer.write(verdicts)
        for overload in planned:
            writer.done(overload, "dynamo")
    store.finish(directory, 0)
    return directory


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    mismatch = Outcome.MISMATCH
    before = [
        verdict(CASES[0]),
        verdict(CASES[1], mismatch, signature="values"),
        verdict(CASES[2], mismatch, signature="values"),
        verdict(CASES[3], max_ulp_error=2.0),
        verdict(CASES[4], max_ulp_error=0.5),
        verdict(CASES[5]),
        verdict(CASES[7], max_ulp_error=2.0),
    ]
    after = [
        verdict(CASES[0], mismatch, signature="values", message="values: expected 1, got 2"),
        verdict(CASES[1]),
        verdict(CASES[2], mismatch, signature="shape"),
        verdict(CASES[3], max_ulp_error=16.0),
        verdict(CASES[4], max_ulp_error=0.0),
        verdict(CASES[6]),
        verdict(CASES[7], max_ulp_error=6.0),
    ]
    return run(tmp_path / "a", before), run(tmp_path / "b", after, "1.1")


def test_every_case_has_its_kind_of_change(runs: tuple[Path, Path]) -> None:
    found = compare_runs(*runs)
    assert found.counts == {
        ChangeKind.REGRESSED: 1,
        ChangeKind.IMPROVED: 1,
        ChangeKind.FAILS_OTHERWISE: 1,
        ChangeKind.DRIFTED: 1,
        ChangeKind.MOVED: 1,
        ChangeKind.UNCHANGED: 1,
        ChangeKind.NEW: 1,
        ChangeKind.GONE: 1,
    }
    assert found.versions == {"backend ort-cpu": ("1.0", "1.1")}


def test_the_command_prints_what_changed_and_closes_on_it(runs: tuple[Path, Path]) -> None:
    before, after = map(str, runs)
    said = typed("diff", before, after)
    assert "backend ort-cpu: 1.0 → 1.1" in said.output
    assert "1 regressed, 1 fails differently, 1 error above bound, 1 numerics moved, 1 improved" in said.output
    typed("diff", before, after, "--fail-on", "regression", status=1)
    same = typed("diff", before, before, "--fail-on", "change")
    assert (same.exit_code, same.output) == (0, "a → a: 7 cases in both\n  7 unchanged\n")
    data = answered("diff", before, after)
    assert data["counts"]["regressed"] == 1
    assert data["versions"] == {"backend ort-cpu": {"before": "1.0", "after": "1.1"}}


def test_markdown_obeys_nothing_that_a_run_says(tmp_path: Path) -> None:
    hostile = "a | b <script>alert(1)</script>\n# title"
    bad = dataclasses.replace(verdict(CASES[0], Outcome.MISMATCH, signature="values"), message=hostile)
    before, after = run(tmp_path / "a", [verdict(CASES[0])]), run(tmp_path / "b", [bad])
    said = typed("diff", before, after, "--markdown").output
    (row,) = [line for line in said.splitlines() if line.startswith("- **")]
    assert "(1 case)" in row
    assert "<script>" not in row
    assert "a \\| b" in row


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    # A regression is 1; what cannot be carried out has another status.
    said = typed("diff", tmp_path, tmp_path, status=2)
    assert f"{tmp_path} holds neither a run" in said.output


def test_what_a_specification_leaves_open_is_no_change(tmp_path: Path) -> None:
    left_open = verdict(CASES[0], Outcome.MISMATCH, signature="NaN positions", blame="spec")
    assert compare_runs(run(tmp_path / "a", [verdict(CASES[0])]), run(tmp_path / "b", [left_open])).counts == {
        ChangeKind.UNCHANGED: 1
    }


def test_versions_that_take_part_are_the_reason(runs: tuple[Path, Path]) -> None:
    (line,) = compare_runs(*runs).overloads
    assert line.why == "other versions: backend ort-cpu"


def test_runs_of_other_cases_are_compared_by_what_chance_allows(tmp_path: Path) -> None:
    def drawn(name: str, first: int, seed: int, **more: Any) -> Path:
        rows = [
            verdict(unary("aten.relu.default", [0.0] * (first + i)), structure_id=str(first + i), **more)
            for i in range(16)
        ]
        info = RunInfo.begin(seed=seed, options={"examples": 64, "values": 4})
        return recorded(tmp_path / name, rows, info)

    before, same = drawn("a", 1, 0), drawn("b", 100, 1)
    worse = drawn("c", 200, 2, outcome=Outcome.UNSUPPORTED, stage=Stage.CONVERT, signature="no conversion")
    said = typed("diff", before, same, "--fail-on", "change")
    assert "seed: 0 → 1" in said.output
    said = typed("diff", before, worse, "--fail-on", "regression", "--json", status=1)
    (difference,) = json.loads(said.output)["differences"]
    assert difference["finding"] == "regression"
    assert "0 of 16 cases, now 16 of 16 cases" in difference["what"]


RELU, CELU = "aten.relu.default", "aten.celu.default"


def diff(*words: str | Path) -> Result:
    return entered("diff", *words)


def of(overload: str, count: int, **more: Any) -> list[Verdict]:
    return [verdict(unary(overload, [float(i)]), **more) for i in range(count)]


@pytest.mark.parametrize(
    ("fewer", "said"),
    [
        ({"op": [CELU]}, "operators: all 2 → aten.celu.default"),
        ({"op": [], "converter": ["dynamo"]}, "converters: dynamo, torchscript → dynamo"),
        ({"op": [], "backend": ["ort-cpu"]}, "backends: onnx-reference, ort-cpu → ort-cpu"),
    ],
)
def test_what_a_run_was_not_asked_for_is_not_gone(tmp_path: Path, fewer: dict[str, Any], said: str) -> None:
    whole: dict[str, Any] = {
        "op": [],
        "converter": ["dynamo", "torchscript"],
        "backend": ["ort-cpu", "onnx-reference"],
    }
    others = {
        "op": of(RELU, 6),
        "converter": of(CELU, 6, converter="torchscript"),
        "backend": of(CELU, 6, backend="onnx-reference"),
    }
    cases = of(CELU, 3)
    full = run(tmp_path / "full", [*cases[:2], *others[next(reversed(fewer))]], **whole)
    small = run(tmp_path / "small", cases[1:], **{**whole, **fewer})
    done = diff(full, small)
    assert said in done.output
    assert "only in the first run: 6 cases that the second did not request" in done.output
    found = json.loads(diff(full, small, "--json").output)
    # The first and the last case of celu were drawn by one run only, which is worth knowing.
    assert (found["compared"], found["counts"]["gone"], found["counts"]["new"]) == (1, 1, 1)
    assert found["not_requested"] == {"new": 0, "gone": 6}
    back = json.loads(diff(small, full, "--json").output)
    assert (back["counts"]["gone"], back["counts"]["new"]) == (1, 1)
    assert back["not_requested"] == {"new": 6, "gone": 0}
    assert "Only in the second run: 6 cases" in diff(small, full, "--markdown").output


@pytest.mark.parametrize(
    ("fewer", "said"),
    [({"examples": 40}, "examples: 128 → 40"), ({"dtype": ["float32"]}, "dtype: all → float32")],
)
def test_cases_of_a_larger_budget_are_not_gone(tmp_path: Path, fewer: dict[str, Any], said: str) -> None:
    full = run(tmp_path / "a", of(RELU, 8), op=[], examples=128)
    done = diff(full, run(tmp_path / "b", of(RELU, 5), **{"op": [], "examples": 128, **fewer}))
    assert said in done.output
    assert "only in the first run: 3 cases that the second did not request" in done.output
    assert done.output.endswith("\n  5 unchanged\n")


@pytest.mark.parametrize("kind", ["change", "regression"])
def test_a_gate_with_nothing_to_compare_is_closed(tmp_path: Path, kind: str) -> None:
    before, after = run(tmp_path / "a", of(RELU, 4), op=[RELU]), run(tmp_path / "b", of(CELU, 4), op=[CELU])
    done = diff(before, after, "--fail-on", kind)
    assert done.exit_code == 1
    assert "nothing was compared" in done.output
    assert "nothing differs" not in done.output
    assert diff(before, after).exit_code == 0
    assert "**Nothing was compared" in diff(before, after, "--markdown").output


def test_the_newest_full_runs_are_compared_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no run in results/" in diff().output
    results = tmp_path / "results"
    run(results / "1", of(RELU, 4), op=[], converter=["dynamo"])
    assert "results holds no run earlier than results/1" in diff().output
    run(results / "2", of(RELU, 4), op=[], converter=["dynamo", "torchscript"])
    run(results / "3", of(RELU, 2), op=[RELU], converter=["dynamo"])
    run(results / "4", of(RELU, 4), op=[], converter=["dynamo"])
    run(results / "5", of(RELU, 2), op=[RELU], converter=["dynamo"])
    assert diff().output.startswith("1 → 4: 4 cases in both\n")
    # A run is compared with one of its own kind, a baseline with a full one.
    assert diff("results/1").output.startswith("1 → 4: 4 cases in both\n")
    assert diff("results/3").output.startswith("3 → 5: 2 cases in both\n")
    assert diff("results", "results/4").output.startswith("1 → 4: ")
    typed("baseline", "results/1", "--out", "expected")
    assert diff("expected").output.startswith("expected → 4: ")
    # With none of its kind the newest full one is taken, and what differs is said.
    assert "converters: dynamo, torchscript → dynamo" in diff("results/2").output
