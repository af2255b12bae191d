"""A root cause is a component, a place and a fault, whichever operators and converters show it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from converter_failures import CAST, INVALID, REJECTED, RUNNING, failed, groups, places
from harness_runs import vector
from recorded_rows import row_of

from harness.blame import decide
from harness.causes.cause import RootCause
from harness.causes.rules import RULES, CauseFacts, merge_causes
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.faults import PROBLEM_FAULTS, Fault
from harness.compare.problem_kinds import PROBLEMS
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation
from harness.pipeline.nodes.kernel_fault import kernel_fault
from harness.present.evidence import FAULTS as FAULT_WORDS, RULES as RULE_WORDS
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

VALUES = "values: output 0: expected 1.0, got 2.0"
NAN = "NaN positions: output 0: expected nan, got 1.0"


def wrong_node(operator: str, fault: str, **attributes: str) -> Testimony:
    """Return the testimony of the witness of nodes about a wrong node."""
    node = {"operator": operator, "index": 0, "dtypes": ["float32"], "attributes": attributes}
    facts = {"backend": "ort-cpu", "node": node, "inputs": [], "right": "1", "got": "2", "kernel_fault": fault}
    return Testimony(Role.NODES, Finding.WRONG, "wrong-node", facts)


def kernel(overload: str, operator: str, fault: str, message: str = VALUES, **changes: Any) -> Any:
    how = {"blame": "backend", "blame_rule": "wrong-node", "testimony": (wrong_node(operator, fault),)}
    return failed(overload, message, **{"converter": "dynamo", **how, **changes})


def test_a_wrong_kernel_is_one_defect_under_every_operator_and_converter() -> None:
    rows = [
        kernel("aten.sigmoid.default", "Sigmoid", "inexact"),
        kernel("aten.silu.default", "Sigmoid", "inexact"),
        kernel("aten.gru.input", "Sigmoid", "inexact", NAN, converter="torchscript"),
    ]
    [group] = groups(*rows)
    assert places(*rows) == {("ort-cpu: Sigmoid", "is inexact")}
    assert group.overloads == ("aten.gru.input", "aten.sigmoid.default", "aten.silu.default")
    assert group.converters == ("dynamo", "torchscript")


def test_a_kernel_may_have_two_defects() -> None:
    rows = [
        kernel("aten.maximum.default", "Max", "kernel-loses-nan", NAN),
        kernel("aten.maximum.default", "Max", "wrong-integers"),
        kernel("aten.clamp_min.Tensor", "Max", "wrong-integers"),
    ]
    assert places(*rows) == {
        ("ort-cpu: Max", "loses NaN"),
        ("ort-cpu: comparisons of integers", "gives wrong integers"),
    }


@pytest.mark.parametrize(
    ("right", "got", "dtype", "fault"),
    [
        (0.00407014, 0.00407015, "float32", "inexact"),
        (1.0, 3.0, "float32", "wrong-numbers"),
        (np.nan, 1.0, "float32", "kernel-loses-nan"),
        (1.0, np.nan, "float32", "makes-nan"),
        (1.0, np.inf, "float32", "makes-infinities"),
        (0.0, -0.0, "float32", "loses-sign-of-zero"),
        (1e-40, 0.0, "float32", "flushes-small-numbers"),
        (1.2345678901234, float(np.float32(1.2345678901234)), "float64", "float64-in-float32"),
        (5, 7, "int64", "wrong-integers"),
        (True, False, "bool", "wrong-truth-values"),
    ],
)
def test_the_fault_of_a_kernel_follows_from_its_first_wrong_element(
    right: Any, got: Any, dtype: str, fault: str
) -> None:
    r, g = (np.array([number], dtype) for number in (right, got))
    assert kernel_fault([np.ones(1, dtype)], r, g, (0,)) == fault
    assert kernel_fault([np.ones(0, dtype)], r, g, (0,)) == "wrong-without-elements"


def test_a_refusal_is_of_the_kernel_that_it_names() -> None:
    how: dict[str, Any] = {"blame": "backend", "converter": "dynamo", "stage": Stage.LOAD}
    missing = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Erf(13) node"
    rows = [failed(f"aten.{name}.default", missing, outcome=Outcome.UNSUPPORTED, **how) for name in ("erf", "gelu")]
    assert places(*rows) == {("ort-cpu: Erf", "has no kernel for these dtypes")}


def test_a_failure_that_went_through_a_users_rule_is_the_rules() -> None:
    rows = [failed("aten.celu.default", VALUES, "dynamo", rule="my_rules.py:celu")]
    assert places(*rows) == {("rule: my_rules.py:celu", "gives wrong values")}


def test_a_record_of_an_earlier_version_is_grouped_by_its_messages() -> None:
    call = Invocation("aten.celu.default", (("self", vector([0.5])),))
    error: dict[str, Any] = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR, "signature": "in celu: KeyError"}
    other = replace(call, overload="aten.elu.default")
    rows = [row_of(one, **error) for one in (call, other)]
    wrong = {"outcome": Outcome.MISMATCH, "signature": "values"}
    rows += [row_of(one, **wrong) for one in (call, other)]
    found = groups(*rows)
    assert sorted(len(group.overloads) for group in found) == [1, 1, 2]
    assert {group.cause.fault for group in found} == {""}


def test_root_causes_need_no_help_of_the_harness(tmp_path: Path) -> None:
    """The query of the README."""
    rows = [kernel(f"aten.{name}.default", "Sigmoid", "inexact") for name in ("sigmoid", "silu")]
    rows.append(failed("aten.celu.default", INVALID.format("Celu") + CAST, "dynamo", function="aten_celu", **REJECTED))
    with RunWriter(tmp_path / "run", RunInfo.begin(seed=0, options={})) as writer:
        writer.write(rows)
    store.finish(tmp_path / "run", 1)
    query = f"""
        SELECT component, place, fault, count(DISTINCT overload) AS operators, count(*) AS cases
        FROM '{tmp_path}/run/verdicts.parquet' WHERE fault <> '' GROUP BY ALL ORDER BY cases DESC
    """
    found = duckdb.execute(query).fetchall()
    assert found == [
        ("ort-cpu", "Sigmoid", "inexact", 2, 2),
        ("torchlib", "aten_celu", "undefined-dtype", 1, 1),
    ]


def test_every_fault_and_statement_has_its_words() -> None:
    assert set(FAULT_WORDS) == {*Fault}
    assert {row.rule for table in (*decide._TABLES.values(), decide._ERROR) for row in table} <= set(RULE_WORDS)
    assert set(PROBLEM_FAULTS) == {*PROBLEMS}


# The table of rules, on typed facts


def facts(fault: str, number: int, place: str = "aten_f", **changes: Any) -> CauseFacts:
    cause = RootCause("converter", "torchlib", place, fault, symptom="", choice=changes.pop("choice", ""))
    plain: dict[str, Any] = {
        "rows": 10 - number,
        "severity": 0,
        "cases": frozenset({number}),
        "structures": frozenset({number}),
        "simultaneous": frozenset(),
        "elements": frozenset(),
    }
    return CauseFacts(cause=cause, **{**plain, **changes})


SHARED: dict[str, Any] = {"structures": frozenset({7})}
UNITED: dict[str, tuple[CauseFacts, CauseFacts]] = {
    "missing-cast": (facts("undefined-dtype", 0), facts("computes-in-another-dtype", 1)),
    "one-graph": (facts("values", 0, **SHARED), facts("leaves-range", 1, **SHARED)),
    "unstable-formula": (facts("leaves-range", 0), facts("values", 1, elements=frozenset({"inexact"}))),
    "one-function": (facts("values", 0), facts("infinities", 1)),
    "wrong-numbers-too": (facts("loses-nan", 0, has_wrong_numbers=True), facts("values", 1)),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_unites_what_it_says_and_nothing_else(rule: Any) -> None:
    one, other = UNITED[rule.name]
    assert sorted(*merge_causes([one, other], [rule])) == [0, 1]
    elsewhere = replace(other, cause=replace(other.cause, place="elsewhere"))
    assert len(merge_causes([one, elsewhere], [rule])) == 2
    # What one case has at the same time is two defects.
    both = replace(one, simultaneous=frozenset({1})), replace(other, simultaneous=frozenset({0}))
    assert len(merge_causes(both, [rule])) == 2


def test_a_number_that_float32_cannot_hold_is_a_symptom_of_a_missing_cast() -> None:
    beyond = facts("leaves-range", 0, elements=frozenset({"beyond"}))
    assert len(merge_causes([beyond, facts("computes-in-another-dtype", 1)])) == 1
    other = facts("leaves-range", 0, elements=frozenset({"beyond", "left"}))
    assert len(merge_causes([other, facts("computes-in-another-dtype", 1)])) == 2


def test_the_algorithms_of_a_place_have_defects_of_their_own() -> None:
    found = [facts("values", n, choice=choice, **SHARED) for n, choice in enumerate(("", "mode=floor", "mode=trunc"))]
    assert len(merge_causes(found)) == 3


def test_a_node_that_a_runtime_refuses_in_many_words_is_one_defect() -> None:
    run: dict[str, Any] = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
    words = ("invalid indice found, indice = 7", "last dimension of indices must be 1")
    said = [RUNNING.format(f"ScatterND node. Name:'a' Status Message: {text}") for text in words]
    assert len(groups(*(failed("aten.masked_scatter.default", message, **run) for message in said))) == 1
