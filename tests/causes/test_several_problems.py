"""A case in which several things are wrong, from its run to the groups of failures."""

from __future__ import annotations

import json

import pytest
from harness_runs import literal_unit, row_of, unary, vector

from harness.causes.groups import failure_groups
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.plan.unit import run_unit
from harness.record.parquet import to_table

_RULES = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

@dynamo("aten::neg")
def neg(self):
    return op.Cast(op.Add(self, self), to=11)

@dynamo("aten::sign")
def sign(self):
    return op.Cast(op.Sign(self), to=11)

# Not valid for integers, which the evaluator rounds anyway.
@dynamo("aten::abs")
def abs_(self):
    return op.Ceil(self)
"""

_PAIR = (("self", vector([1, 3], "int32")),)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    rules = tmp_path_factory.mktemp("rules") / "rules.py"
    rules.write_text(_RULES)
    settings = Settings(witnesses=("onnx-reference",), last_witnesses=())
    found = {}
    with Supervisor() as supervisor:
        for name, call, backend in (
            ("neg", unary("aten.neg.default", [1, -2]), "ort-cpu"),
            ("sign", unary("aten.sign.default", [1, -2]), "ort-cpu"),
            ("abs", unary("aten.abs.default", [1, -2], "int64"), "onnx-reference"),
            ("abs", unary("aten.abs.default", [1, -2], "int64"), "ort-cpu"),
            ("pow", Invocation("aten.pow.Tensor_Scalar", (*_PAIR, ("exponent", 31))), "ort-cpu"),
        ):
            unit = literal_unit([call], backends=[backend], settings=settings, rules=[str(rules)])
            for some in run_unit(unit, supervisor, print):
                found.update({f"{name} {backend}": verdict for verdict in some})
    return found


def test_values_behind_a_wrong_dtype_are_compared_and_blamed(verdicts: dict[str, Verdict]) -> None:
    neg = verdicts["neg ort-cpu"]
    assert (neg.stage, neg.outcome, neg.signature) == (Stage.COMPARE, Outcome.MISMATCH, "dtype")
    dtype, values = json.loads(neg.problems)
    assert dtype["message"] == neg.message == "dtype: output 0: expected float32, got float64"
    assert values["message"] == "values: output 0[0]: expected -1.0, got 2.0"
    assert (dtype["blame"], values["blame"]) == ("converter", "converter")
    told = json.loads(values["diagnosis"])["testimony"]
    agreeing = [t["facts"]["witness"] for t in told if (t["role"], t["finding"]) == ("runtime", "same")]
    assert "onnx-reference" in agreeing
    # Right values in a wrong dtype are one problem.
    assert (verdicts["sign ort-cpu"].signature, verdicts["sign ort-cpu"].problems) == ("dtype", "")


def test_a_further_problem_that_is_no_failure_is_in_no_group() -> None:
    wrong = {"stage": "compare", "outcome": "mismatch", "signature": "dtype", "message": "", "blame": "converter"}
    inexact = {**wrong, "outcome": "inaccurate", "signature": "values"}
    row = row_of(
        unary("aten.neg.default", [1.0]),
        outcome=Outcome.MISMATCH,
        signature="dtype",
        blame="converter",
        problems=json.dumps([wrong, inexact]),
    )
    assert [group.signature for group in failure_groups(to_table([row], "run"))] == ["dtype"]


def test_each_problem_is_a_group_of_its_own(verdicts: dict[str, Verdict]) -> None:
    groups = failure_groups(to_table([verdicts["neg ort-cpu"], verdicts["sign ort-cpu"]], "run"))
    found = {(group.signature, group.overloads): group for group in groups}
    assert set(found) == {
        ("dtype", ("aten.neg.default",)),
        ("dtype", ("aten.sign.default",)),
        ("values", ("aten.neg.default",)),
    }
    assert found["values", ("aten.neg.default",)].message.startswith("values: output 0[0]")


def test_a_model_that_the_checker_rejects_is_run_where_the_runtime_takes_it(
    verdicts: dict[str, Verdict],
) -> None:
    taken, refused = verdicts["abs onnx-reference"], verdicts["abs ort-cpu"]
    for verdict in (taken, refused):
        assert (verdict.stage, verdict.outcome, verdict.blame) == (Stage.CHECK, Outcome.ERROR, "converter")
    assert refused.problems == ""
    rejected, values = json.loads(taken.problems)
    assert (rejected["stage"], rejected["message"]) == ("check", taken.message)
    assert (values["stage"], values["message"]) == ("compare", "values: output 0[1]: expected 2, got -2")
    assert values["blame"] == "converter"
    found = {group.stage: group.backends for group in failure_groups(to_table([taken], "run"))}
    assert found == {Stage.CHECK: (), Stage.COMPARE: ("onnx-reference",)}


def test_an_overflow_that_neither_wraps_nor_saturates_is_the_runtimes(verdicts: dict[str, Verdict]) -> None:
    power = verdicts["pow ort-cpu"]
    assert (power.outcome, power.blame, power.mismatched_elements) == (Outcome.MISMATCH, "backend", 1)
    assert (power.component, power.place) == ("ort-cpu", "Pow")
