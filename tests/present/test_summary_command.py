"""`conformance summary`: what a job's page and a chat say of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from commands import typed
from harness_runs import recorded, row_of, unary

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.record.run_info import RunInfo, read_run_info, write_run_info

CELU, ERF = "aten.celu.default", "aten.erf.default"
HOSTILE = "a | b <script>alert(1)</script>\n## no heading\x1b[31m"


def rows(overload: str, failing: int = 0, number: int = 6) -> list[Verdict]:
    failure: dict[str, Any] = {
        "outcome": Outcome.MISMATCH,
        "signature": f"values {HOSTILE}",
        "message": HOSTILE,
        "blame": "converter",
    }
    return [row_of(unary(overload, [float(n)]), **(failure if n < failing else {})) for n in range(number)]


def make_run(directory: Path, verdicts: list[Verdict], **changes: Any) -> Path:
    info = RunInfo.begin(seed=0, options={"converter": ["dynamo"], "backend": ["ort-cpu"]})
    recorded(directory, verdicts, info)
    write_run_info(directory, dataclasses.replace(read_run_info(directory), **changes))
    return directory


def summary(*words: str | Path) -> str:
    result = typed("summary", *words)
    return result.stdout


def test_which_operators_of_onnx_were_computed(tmp_path: Path) -> None:
    right = [row_of(unary(CELU, [float(n)]), onnx_operators="Cast Celu") for n in range(3)]
    failing: dict[str, Any] = {"outcome": Outcome.ERROR, "stage": Stage.LOAD, "message": "no kernel"}
    refused = row_of(unary(ERF, [0.0]), onnx_operators="Cast Erf com.microsoft.Gelu", **failing)
    invalid = row_of(unary(ERF, [1.0]), onnx_operators="Add", **{**failing, "stage": Stage.CHECK})
    text = summary(make_run(tmp_path / "run", [*right, refused, invalid]))
    assert "ort-cpu: 2 of 201 ONNX operators were compared; 1 more fails wherever it occurs: Erf." in text


def test_which_passes_changed_a_program(tmp_path: Path) -> None:
    passes = {"exporter_passes": "CastCast, TransposeIdentity", "backend_passes": "GeluFusionL1"}
    run = make_run(tmp_path / "run", [row_of(unary(CELU, [float(n)]), **passes) for n in range(3)])
    exporter, backend = json.loads(summary(run, "--json"))["passes"]
    # They share a structure.
    assert (exporter["component"], exporter["fired"]) == ("dynamo", {"CastCast": 1, "TransposeIdentity": 1})
    assert (backend["component"], backend["fired"]) == ("ort-cpu", {"GeluFusionL1": 1})
    assert "ConvBNFusion" in backend["never"]
    assert "BiasDropoutFusion" in backend["out_of_reach"]
    assert "BiasDropoutFusion" not in backend["never"]


def test_a_worse_run_is_red(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", rows(CELU) + rows(ERF, failing=6))
    after = make_run(tmp_path / "after", rows(CELU, failing=2) + rows(ERF, failing=6))
    text = summary(after, "--against", before)
    assert text.startswith("## Conformance is red: 2 worse than before\n")
    # Of two operators, one passes some cases, the other none.
    assert "| dynamo → ort-cpu | 2 | 0 | 1 | 1 | 0 | 0 | 4 of 12 (33.3%) |" in text
    assert "#### Regressed: 2" in text
    message = json.loads(summary(after, "--against", before, "--chat", "--link", "https://x.test/"))["text"]
    assert message.splitlines() == [
        "Conformance is red: 2 worse than before",
        "dynamo → ort-cpu: 0 of 2 operators pass all their cases",
        "• aten.celu.default, dynamo → ort-cpu: 2 regressed",
        "https://x.test/",
    ]
    data = json.loads(summary(after, "--against", before, "--json", "--chat-out", tmp_path / "chat.json"))
    assert json.loads((tmp_path / "chat.json").read_text())["text"].startswith("Conformance is red: 2 worse")
    assert (data["red"], data["worse"], data["complete"]) == (True, 2, True)


def test_failures_that_are_expected_make_no_run_red(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", rows(CELU, failing=2) + rows(ERF))
    baseline = tmp_path / "baseline"
    made = typed("baseline", run, "--out", baseline)
    # They differ in values alone.
    assert "1 operator: no failure found in 6 drawn cases\n" in made.output
    assert summary(run, "--against", baseline).startswith("## Conformance is green: nothing is worse\n")
    assert summary(run).startswith("## Conformance: 1 distinct failure (no baseline)\n")
    worse = make_run(tmp_path / "worse", rows(CELU, failing=5) + rows(ERF))
    text = summary(worse, "--against", baseline)
    assert text.startswith("## Conformance is red: 1 worse than ")
    assert "#### Regression: 1" in text


def test_a_run_without_anything_to_compare_is_red(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", rows(ERF))
    text = summary(make_run(tmp_path / "run", rows(CELU)), "--against", before)
    assert text.startswith("## Conformance is red: no entry in common with before\n")


def test_a_directory_of_runs_stands_for_the_one_of_the_same_kind(tmp_path: Path) -> None:
    nights = tmp_path / "nights"
    options: dict[str, Any] = {"converter": ["dynamo"], "backend": ["ort-cpu"]}
    make_run(nights / "full", rows(CELU) + rows(ERF))
    make_run(nights / "small", rows(CELU), options={**options, "op": [CELU]})
    run = make_run(nights / "later", rows(CELU) + rows(ERF, failing=1))
    assert summary(run, "--against", nights).startswith("## Conformance is red: 1 worse than full\n")


def test_what_a_run_says_breaks_no_table(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", rows(CELU))
    text = summary(make_run(tmp_path / "run", rows(CELU, failing=2)), "--against", before)
    assert "alert(1)" in text
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\n## no heading" not in text
    for line in text.splitlines():
        if line.startswith(("| mismatch", "| 2 |")):
            assert line.replace("\\|", "").count("|") == (
                6 if "mismatch at" in line[:20] else 5 if "| 2 |" in line[:5] else 4
            )


def test_what_is_missing_is_red_and_counts_as_no_pass(tmp_path: Path) -> None:
    parts = [
        {"index": n, "count": 2, "state": state, "operators": [name], "unfinished": lost}
        for n, state, name, lost in ((1, "complete", CELU, []), (2, "missing", ERF, [ERF]))
    ]
    run = make_run(tmp_path / "run", rows(CELU), shards=parts, operators=[CELU, ERF], unfinished=[ERF])
    text = summary(run)
    assert text.startswith("## Conformance is red: shard 2/2 is missing; 1 of 2 operators lack results;")
    assert "| 2/2 | missing | 1 | 1 |" in text
    assert "| dynamo → ort-cpu | 2 | 1 | 0 | 0 | 0 | 1 | 6 of 6 (100.0%) | 6 of 6 (100.0%) |" in text
    assert "1 of 2 operators pass all their cases, 1 missing" in summary(run, "--chat")


def test_ordinary_cases_are_counted_apart(tmp_path: Path) -> None:
    edge = [row_of(unary(CELU, [float("nan"), float(n)])) for n in range(3)]
    run = make_run(tmp_path / "run", rows(CELU, failing=2) + edge)
    assert "| 4 of 6 (66.7%) | 7 of 9 (77.8%) |" in summary(run)
    [column] = json.loads(summary(run, "--json"))["columns"]
    assert column["ordinary"] == {"passed": 4, "total": 6}
