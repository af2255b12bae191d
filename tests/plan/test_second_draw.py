"""Arguments that never reached a comparison are drawn again in calls that do."""

from __future__ import annotations

import pytest

from harness.compare.verdict import Stage, Verdict
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.draw import Draw
from harness.generate.operator_case import OPERATOR_CASES, Arguments, OperatorCase
from harness.generate.sources.generated import Generated
from harness.generate.sources.redrawn import Redrawn
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit

SOFTMAX = "aten.softmax.int"


def last_dim_in_bfloat16(d: Draw) -> Arguments:
    """ONNX Runtime has no softmax in bfloat16, so the last dimension is never compared."""
    return {"self": d.tensor((2, d.size(2, 5))), "dim": -1 if d.dtype == "bfloat16" else 0}


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    load_cases()
    with pytest.MonkeyPatch.context() as patch, Supervisor() as supervisor:
        case = OperatorCase(
            overload=SOFTMAX, family="t", dtypes=("float32", "bfloat16"), arguments=last_dim_in_bfloat16
        )
        patch.setitem(OPERATOR_CASES, SOFTMAX, case)
        unit = Unit(
            overload=SOFTMAX,
            route=Route(converter="dynamo"),
            backends=("ort-cpu",),
            examples=48,
            sources=(Generated(), Redrawn()),
        )
        return [verdict for found in run_unit(unit, supervisor) for verdict in found]


def dim_of(verdict: Verdict) -> object:
    return dict(Invocation.from_json(verdict.invocation).arguments)["dim"]


def test_an_argument_that_fails_early_is_compared_in_another_dtype(verdicts: list[Verdict]) -> None:
    drawn = [v for v in verdicts if v.source == "generated"]
    assert {dim_of(v) for v in drawn if v.stage is not Stage.COMPARE} == {-1}
    assert {dim_of(v) for v in drawn if v.stage is Stage.COMPARE} == {0}
    again = [v for v in verdicts if v.source == "redrawn"]
    assert again
    assert {(v.dtype, dim_of(v)) for v in again if v.stage is Stage.COMPARE} == {("float32", -1)}


def test_what_was_compared_is_not_drawn_again(verdicts: list[Verdict]) -> None:
    known = {v.structure_id for v in verdicts if v.source == "generated"}
    assert known.isdisjoint(v.structure_id for v in verdicts if v.source == "redrawn")
    assert all(dim_of(v) != 0 for v in verdicts if v.source == "redrawn")
