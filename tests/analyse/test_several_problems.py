"""A case in which several things are wrong, from its run to the groups of failures."""

from __future__ import annotations

import json

import pytest
from harness_runs import literal_unit, unary

from harness.analyse import failure_groups
from harness.compare import Outcome, Stage, Verdict
from harness.execute import Settings, Supervisor
from harness.plan.unit import run_unit
from harness.record.schema import to_table

_RULES = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

@dynamo("aten::neg")
def neg(self):
    return op.Cast(op.Add(self, self), to=11)

@dynamo("aten::sign")
def sign(self):
    return op.Cast(op.Sign(self), to=11)

"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    rules = tmp_path_factory.mktemp("rules") / "rules.py"
    rules.write_text(_RULES)
    settings = Settings(rules=(str(rules),), witnesses=("onnx-reference",), last_witnesses=())
    with Supervisor() as supervisor:
        return {
            name: verdict
            for name in ("neg", "sign")
            for some in run_unit(
                literal_unit(
                    [unary(f"aten.{name}.default", [1.0, -2.0])], backends=["ort-cpu"], settings=settings
                ),
                supervisor,
                print,
            )
            for verdict in some
        }


def test_values_behind_a_wrong_dtype_are_compared_and_blamed(verdicts: dict[str, Verdict]) -> None:
    neg = verdicts["neg"]
    assert (neg.stage, neg.outcome, neg.signature) == (Stage.COMPARE, Outcome.MISMATCH, "dtype")
    dtype, values = json.loads(neg.problems)
    assert dtype["message"] == neg.message == "dtype: output 0: expected float32, got float64"
    assert values["message"] == "values: output 0[0]: expected -1.0, got 2.0"
    assert (dtype["blame"], values["blame"]) == ("converter", "converter")
    assert "onnx-reference gives ort-cpu's result" in values["evidence"]
    # Right values in a wrong dtype are one problem.
    assert (verdicts["sign"].signature, verdicts["sign"].problems) == ("dtype", "")


def test_each_problem_is_a_group_of_its_own(verdicts: dict[str, Verdict]) -> None:
    groups = failure_groups(to_table(verdicts.values(), "run"))
    found = {(group.signature, group.overloads): group for group in groups}
    assert set(found) == {
        ("dtype", ("aten.neg.default",)),
        ("dtype", ("aten.sign.default",)),
        ("values", ("aten.neg.default",)),
    }
    assert found["values", ("aten.neg.default",)].message.startswith("values: output 0[0]")
