"""A backend that computes in a narrower dtype than asked: OpenVINO, 64-bit integers in 32 bits."""

from __future__ import annotations

import pytest
from harness_runs import vector

from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Task


def ending(call: Invocation) -> tuple[Stage, Outcome, str]:
    pytest.importorskip("openvino")
    task = Task((CaseGroup.of(call, index=0),), Route(converter="dynamo"), ("openvino",))
    with Supervisor() as supervisor:
        (result,) = (result for part in supervisor.run(task) for result in part)
    return result.stage, result.outcome, result.message


def test_integers_that_fit_are_run_as_others() -> None:
    # Its indices are int64.
    call = Invocation("aten.topk.default", (("self", vector([3.0, 1.0, 2.0])), ("k", 2)))
    assert ending(call) == (Stage.COMPARE, Outcome.PASS, "")


def test_a_wrong_result_of_an_integer_that_does_not_fit_is_narrowing() -> None:
    call = Invocation("aten.add.Scalar", (("self", vector([2**40, 1], "int64")), ("other", 1)))
    assert ending(call) == (Stage.COMPARE, Outcome.NARROWED, "openvino silently computes int64 in int32")


def test_floats_are_not_run() -> None:
    call = Invocation("aten.neg.default", (("self", vector([1.0], "float64")),))
    assert ending(call) == (Stage.LOAD, Outcome.NARROWED, "openvino silently computes float64 in float32")
