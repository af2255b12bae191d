"""The page of an operator tells the conditions under which it fails."""

from __future__ import annotations

from harness_runs import row_of, vector

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.present.dashboard.operator_data import Attachments, decoded, operator_data
from harness.record.parquet import to_table


def rows(dtype: str, number: int, **changes: object) -> list[Verdict]:
    calls = [Invocation("aten.celu.default", (("self", vector([0.5] * n, dtype)),)) for n in range(1, number)]
    return [row_of(call, structure_id=call.case_id, blame="unknown", **changes) for call in calls]


def test_calls_that_fail_in_another_way_are_not_taken_for_calls_that_pass() -> None:
    failing = {"outcome": Outcome.MISMATCH, "signature": "values"}
    refused = {"outcome": Outcome.ERROR, "stage": Stage.LOAD, "signature": "no kernel"}
    record = [*rows("float64", 12, **failing), *rows("float32", 13), *rows("float16", 9, **refused)]
    found = operator_data("aten.celu.default", decoded(to_table(record, "run")), Attachments())["findings"]
    [wrong] = [one for one in found if one["stage"] == "compare"]
    assert wrong["sentence"] == "fails if and only if called with self of float64"
    assert (wrong["signature"], wrong["backends"]) == ("values", ["ort-cpu"])
    counts = ("fails", "cases", "other_fails", "other_cases", "apart")
    assert [wrong[name] for name in counts] == [11, 11, 0, 12, 8]
    [load] = [one for one in found if one["stage"] == "load"]
    assert load["sentence"] == "fails if and only if called with self of float16"
    assert load["apart"] == 11


def test_backends_that_fail_to_another_extent_are_told_apart() -> None:
    failing = {"outcome": Outcome.MISMATCH, "signature": "values"}
    record = [
        row
        for backend, size in (("ort-cpu", 12), ("onnx-reference", 12), ("openvino", 9))
        for row in [*rows("float64", size, backend=backend, **failing), *rows("float32", 13, backend=backend)]
    ]
    found = operator_data("aten.celu.default", decoded(to_table(record, "run")), Attachments())["findings"]
    assert [(one["fails"], one["backends"]) for one in found] == [
        (11, ["onnx-reference", "ort-cpu"]),
        (8, ["openvino"]),
    ]
