"""The catalogue of defects: one entry per root cause, whichever runs found it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from harness_runs import record_of, unary

from harness.app.cli._group import conformance
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.plan import reexecute

WRONG = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "blame": "backend", "signature": "values"}
NO_KERNEL = {
    "stage": Stage.LOAD,
    "outcome": Outcome.UNSUPPORTED,
    "blame": "backend",
    "signature": "no kernel",
}
OPEN = {**WRONG, "blame": "spec"}
MANY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "log", "neg", "relu"),
    *("round", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "square"),
)


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(conformance, ["catalogue", *map(str, words)])


def entries(*runs: Path) -> dict[str, list[str]]:
    found = json.loads(invoke(*runs, "--json").output)
    return {entry["overloads"][0]: entry["runs"] for entry in found["entries"]}


def test_the_same_cause_in_two_runs_is_one_entry(tmp_path: Path) -> None:
    few = record_of(tmp_path / "few", [unary("aten.neg.default", [1.0])], **WRONG)
    neg = [unary("aten.neg.default", [2.0, 3.0]), unary("aten.neg.default", [4.0])]
    many = record_of(tmp_path / "many", neg, **WRONG)
    assert entries(few, many) == {"aten.neg.default": ["few", "many"]}
    other = record_of(tmp_path / "other", [unary("aten.abs.default", [1.0])], **WRONG)
    assert entries(few, other) == {"aten.neg.default": ["few"], "aten.abs.default": ["other"]}
    text = invoke(few, many, other).output
    assert "2 distinct defects by root cause" in text
    # Each run with its cases and what it found.
    assert "| many |  |  | 0 |  | 1 | 2 | 1 |" in text


def test_the_case_that_is_shown_can_be_replayed(tmp_path: Path) -> None:
    large, small = unary("aten.neg.default", [1.0, 2.0]), unary("aten.neg.default", [3.0])
    first, second = (record_of(tmp_path / n, [call], **WRONG) for n, call in (("a", large), ("b", small)))
    found = invoke(first, second).output
    assert "`conformance replay CASE --run RUN`" in found
    assert "- smallest case: `aten.neg.default(self=float32[1]" in found
    command = "- script: `conformance repro {} --run {} --converter dynamo --backend ort-cpu`"
    assert f"{command.format(small.case_id, 'b')} (found by a, b)" in found
    alone = invoke(first).output
    assert "- smallest case: `aten.neg.default(self=float32[2]" in alone
    assert f"{command.format(large.case_id, 'a')}\n" in alone
    assert reexecute.recorded(second, small.case_id).cases[0].invocation == small


def test_the_run_that_is_named_has_the_failure_and_not_only_the_case(tmp_path: Path) -> None:
    call, other = unary("aten.neg.default", [1.0]), {**WRONG, "blame": "converter"}
    first = record_of(tmp_path / "first", [call], **WRONG)
    second = record_of(tmp_path / "second", [call], **other, converter="torchscript")
    text = invoke(first, second).output
    assert f"`conformance repro {call.case_id} --run first --converter dynamo --backend ort-cpu`" in text
    assert f"`conformance repro {call.case_id} --run second --converter torchscript --backend ort-cpu`" in text


def test_gaps_and_what_is_left_open_are_no_defects(tmp_path: Path) -> None:
    gap = record_of(tmp_path / "gap", [unary("aten.neg.default", [1.0])], **NO_KERNEL)
    left_open = record_of(tmp_path / "open", [unary("aten.abs.default", [1.0])], **OPEN)
    text = invoke(gap, left_open).output
    assert "0 distinct defects" in text
    assert "### ort-cpu: declared gaps" in text
    assert "## Left open by a specification" in text


def test_the_words_of_a_runtime_cannot_break_the_table(tmp_path: Path) -> None:
    words = "bad | cell <img src=x>\nsecond line"
    # The first of a component are told in full, and a table has the others.
    calls = [unary(f"aten.{name}.default", [1.0]) for name in MANY]
    run = record_of(tmp_path / "run", calls, **WRONG, message=words)
    out = tmp_path / "found.md"
    assert invoke(run, "--out", out).exit_code == 0
    lines = out.read_text().splitlines()
    assert sum(line == r"- says: bad \| cell &lt;img src=x>" for line in lines) == 20
    rows = [line for line in lines if line.startswith("| dynamo → ort-cpu") and r"bad \| cell &lt;img src=x>" in line]
    assert len(rows) == len(MANY) - 20
    assert all(row.replace(r"\|", "").count("|") == 6 for row in rows)
    assert "second" not in out.read_text()


def test_each_component_has_a_page_of_its_places(tmp_path: Path) -> None:
    calls = [unary(f"aten.{name}.default", [1.0]) for name in ("floor", "trunc")]
    rejected = "InferenceError: [ShapeInferenceError] (op_type:NonZero): unsupported type"
    how = {"stage": Stage.CHECK, "outcome": Outcome.ERROR, "blame": "converter", "signature": rejected}
    how |= {"component": "dynamo", "place": "NonZero nodes", "fault": "undefined-dtype"}
    run = record_of(tmp_path / "run", [*calls, unary("aten.ceil.default", [1.0])], **how)
    text = invoke(run).output
    assert "| [dynamo](#dynamo) | 1 | 1 | 3 | 3 |  |" in text
    assert "\n## dynamo\n" in text
    assert "\n### 1. dynamo: NonZero nodes: gives nodes dtypes that they are not defined for\n" in text
    entry = json.loads(invoke(run, "--json").output)["entries"][0]
    assert (entry["component"], entry["place"], entry["line"]) == ("dynamo", "NonZero nodes", None)


def test_a_page_is_linked_as_markdown_on_github_names_its_heading(tmp_path: Path) -> None:
    backend = "onnx-api:my_runtime.backend"
    run = record_of(tmp_path / "run", [unary("aten.neg.default", [1.0])], **WRONG, backend=backend)
    assert f"| [{backend}](#onnx-apimy_runtimebackend) | 1 |" in invoke(run).output


def test_a_root_cause_has_the_line_that_a_case_was_traced_to(tmp_path: Path) -> None:
    image = TensorSpec((1, 1, 2, 2), "float32", (4, 4, 2, 1), 0, Literal((1.0, 2.0, 3.0, 6.0)))
    call = Invocation("aten.avg_pool2d.default", (("self", image), ("kernel_size", (2, 2)), ("divisor_override", 3)))
    run = record_of(tmp_path / "run", [call], **{**WRONG, "blame": "converter"})
    done = invoke(run, "--lines", "60")
    assert done.stderr == "looked for the lines of 1 root cause of run\n"
    assert "- likeliest line: `onnxscript/function_libs/torch_lib/ops/nn.py:" in done.stdout
    # What was found is kept.
    again = invoke(run, "--lines", "0", "--json")
    assert again.stderr == "looked for the lines of 0 root causes of run\n"
    [entry] = json.loads(again.stdout)["entries"]
    assert entry["line"]["function"] == "aten_avg_pool2d"


def test_runs_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    call = unary("aten.neg.default", [1.0])
    runs = [record_of(tmp_path / name / "run", [call], **WRONG) for name in ("a", "b")]
    done = invoke(*runs)
    assert done.exit_code == 2
    assert "two of the runs have the same name" in done.output
