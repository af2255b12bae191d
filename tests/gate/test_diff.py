"""`conformance diff`: two runs side by side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harness_runs import unary

from harness.app.cli._group import conformance
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.gate import ChangeKind, compare_runs
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

CASES = [unary("aten.relu.default", [float(i)]) for i in range(8)]


def verdict(invocation: Invocation, outcome: Outcome = Outcome.PASS, **more: Any) -> Verdict:
    fields: dict[str, Any] = {
        "case_id": invocation.case_id,
        "overload": invocation.overload,
        "family": "activation",
        "dtype": invocation.dtype,
        "shape_mode": "static",
        "source": "generated",
        "converter": "dynamo",
        "converter_version": "1",
        "opset": 18,
        "backend": "ort-cpu",
        "backend_version": "1",
        "device": "cpu",
        "stage": Stage.COMPARE,
        "outcome": outcome,
        "invocation": invocation.json,
    }
    return Verdict(**{**fields, **more})


def run(directory: Path, verdicts: list[Verdict], version: str = "1.0") -> Path:
    info = RunInfo.begin(seed=0, options={}, versions={"backend ort-cpu": version})
    with RunWriter(directory, info) as writer:
        writer.write(verdicts)
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


def test_every_case_is_told_as_what_it_is(runs: tuple[Path, Path]) -> None:
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


def test_the_command(runs: tuple[Path, Path]) -> None:
    before, after = map(str, runs)
    said = CliRunner().invoke(conformance, ["diff", before, after])
    assert said.exit_code == 0, said.output
    assert "backend ort-cpu: 1.0 → 1.1" in said.output
    assert "1 regressed, 1 fails otherwise, 1 error above bound, 1 numerics moved, 1 improved" in said.output
    gated = CliRunner().invoke(conformance, ["diff", before, after, "--fail-on", "regression"])
    assert gated.exit_code == 1
    same = CliRunner().invoke(conformance, ["diff", before, before, "--fail-on", "change"])
    assert (same.exit_code, same.output) == (0, "7 unchanged\n")
    data = json.loads(CliRunner().invoke(conformance, ["diff", before, after, "--json"]).output)
    assert data["counts"]["regressed"] == 1
    assert data["versions"] == {"backend ort-cpu": {"before": "1.0", "after": "1.1"}}


def test_markdown_obeys_nothing_that_a_run_says(tmp_path: Path) -> None:
    hostile = "a | b <script>alert(1)</script>\n# title"
    bad = dataclasses.replace(verdict(CASES[0], Outcome.MISMATCH, signature="values"), message=hostile)
    before, after = run(tmp_path / "a", [verdict(CASES[0])]), run(tmp_path / "b", [bad])
    said = CliRunner().invoke(conformance, ["diff", str(before), str(after), "--markdown"]).output
    (row,) = [line for line in said.splitlines() if line.startswith("| 1 |")]
    assert "<script>" not in row
    assert "a \\| b" in row


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    said = CliRunner().invoke(conformance, ["diff", str(tmp_path), str(tmp_path)])
    # A regression is 1; what cannot be carried out has another status.
    assert said.exit_code == 2
    assert f"{tmp_path} holds neither a run" in said.output


def test_what_a_specification_leaves_open_is_no_change(tmp_path: Path) -> None:
    left_open = verdict(CASES[0], Outcome.MISMATCH, signature="NaN positions", blame="spec")
    assert compare_runs(
        run(tmp_path / "a", [verdict(CASES[0])]), run(tmp_path / "b", [left_open])
    ).counts == {ChangeKind.UNCHANGED: 1}


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
        with RunWriter(tmp_path / name, info) as writer:
            writer.write(rows)
        store.finish(tmp_path / name, 0)
        return tmp_path / name

    before, same = drawn("a", 1, 0), drawn("b", 100, 1)
    worse = drawn("c", 200, 2, outcome=Outcome.UNSUPPORTED, stage=Stage.CONVERT, signature="no conversion")
    said = CliRunner().invoke(conformance, ["diff", str(before), str(same), "--fail-on", "change"])
    assert said.exit_code == 0, said.output
    assert "seed: 0 → 1" in said.output
    said = CliRunner().invoke(
        conformance, ["diff", str(before), str(worse), "--fail-on", "regression", "--json"]
    )
    assert said.exit_code == 1
    (difference,) = json.loads(said.output)["differences"]
    assert difference["finding"] == "regression"
    assert "0 of 16 cases, now 16 of 16 cases" in difference["what"]
