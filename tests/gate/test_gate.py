"""Differences from a baseline are reported for the same cases, for other ones, and for a larger budget."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from harness_runs import row_of, unary

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.gate.baseline import error_bounds as cells
from harness.gate.baseline.count_cells import cells_of
from harness.gate.baseline.file import Baseline
from harness.gate.baseline.gate import BaselineFinding, CellDifference, compare, probability

OPTIONS = {"seed": 0, "examples": 64, "values": 4}
OTHER_SEED, OTHER_BUDGET = {**OPTIONS, "seed": 1}, {**OPTIONS, "examples": 400}


def rows(seed: int, count: int = 16, fails: int = 0, dtype: str = "float32", **more: Any) -> list[Verdict]:
    """Return rows of `count` structures with a case each, of which `fails` fail alike; a seed has cases of its own."""
    found = []
    for i in range(count):
        invocation = unary("aten.relu.default", [float(seed)] * (1 + i + 100 * seed), dtype)
        changes: dict[str, Any] = {"max_ulp_error": 0.5, **more}
        if i < fails:
            changes = {"outcome": Outcome.MISMATCH, "stage": Stage.COMPARE, "signature": "values", **more}
        found.append(row_of(invocation, structure_id=invocation.structure_id, **changes))
    return found


def failing(verdicts: list[Verdict], outcome: Outcome, stage: Stage, signature: str) -> list[Verdict]:
    return [replace(v, outcome=outcome, stage=stage, signature=signature) for v in verdicts]


def differences(
    before: list[Verdict],
    now: list[Verdict],
    options: dict[str, Any] = OPTIONS,
    flaky: frozenset[tuple[str, str, str, str]] = frozenset(),
) -> list[CellDifference]:
    expected = Baseline({cell.key: cell for cell in cells_of(before)}, {}, OPTIONS)
    return compare(expected, Baseline({cell.key: cell for cell in cells_of(now, flaky)}, {}, options))


def findings(*given: Any, **more: Any) -> list[BaselineFinding]:
    return [difference.finding for difference in differences(*given, **more)]


def unsupported(verdicts: list[Verdict]) -> list[Verdict]:
    return failing(verdicts, Outcome.UNSUPPORTED, Stage.CONVERT, "no conversion")


def test_the_probability_is_fishers() -> None:
    """Counted by hand: in how many ways events fall on two samples, all ways being equally likely."""
    for few, of_few, many, of_many in ((0, 4, 3, 4), (1, 5, 3, 3), (2, 4, 2, 4), (0, 3, 0, 5)):
        events = few + many
        ways = list(combinations(range(of_few + of_many), events))
        at_least = sum(sum(place < of_many for place in way) >= many for way in ways)
        assert probability(few, of_few, many, of_many) == pytest.approx(at_least / len(ways))
    assert probability(0, 0, 5, 5) == 1.0


@pytest.mark.parametrize(
    ("error", "bound"),
    [(None, 0.5), (0.0, 0.5), (0.5, 0.5), (0.51, 1), (1, 1), (4, 4), (4.1, 8), (2**21, float("inf"))],
)
def test_bounds_are_powers_of_two(error: float | None, bound: float) -> None:
    assert cells.bound(error) == bound


def test_the_same_cases_are_compared_exactly() -> None:
    before = rows(0, fails=3)
    assert findings(before, before) == []
    assert findings(before, rows(0, fails=4)) == [BaselineFinding.REGRESSION]
    assert findings(before, rows(0, fails=2)) == [BaselineFinding.IMPROVEMENT]
    assert findings(before, rows(0, fails=0)) == [BaselineFinding.IMPROVEMENT]
    # As many, but other ones.
    moved = [replace(before[3], outcome=Outcome.MISMATCH, signature="values"), *rows(0)[0:1], *before[1:3]]
    assert findings(before, [*moved, *before[4:]]) == [BaselineFinding.REGRESSION]


def test_a_new_signature_of_an_expected_failure_has_a_finding_of_its_own() -> None:
    before = rows(0, fails=3)
    otherwise = failing(before[:3], Outcome.ERROR, Stage.LOAD, "no kernel")
    assert findings(before, [*otherwise, *before[3:]]) == [BaselineFinding.NEW_FAILURE]


def test_a_pass_that_becomes_a_mere_build_is_a_regression() -> None:
    before = rows(0)
    built = [replace(v, outcome=Outcome.BUILT, stage=Stage.LOAD, max_ulp_error=None) for v in before]
    (difference,) = differences(before, built)
    assert difference.finding is BaselineFinding.REGRESSION
    assert "16 of 16 cases passed, now 0 (16 built)" in difference.what


def test_what_a_specification_leaves_open_is_no_failure() -> None:
    left_open = [replace(v, blame="spec", max_ulp_error=1e9) for v in rows(0, fails=5)[:5]]
    assert findings(rows(0), [*left_open, *rows(0)[5:]]) == []


@pytest.mark.parametrize(("before", "now"), [(0.5, 2), (1, 4), (3, 4), (8, 16), (0.0, 1.9), (64, 1)])
def test_rounding_is_no_drift(before: float, now: float) -> None:
    assert findings(rows(0, max_ulp_error=before), rows(0, max_ulp_error=now)) == []


@pytest.mark.parametrize("before", [0.5, 0.7, 1, 2, 3, 100])
def test_eight_times_the_error_is_a_drift_even_beside_an_outlier(before: float) -> None:
    outlier = [replace(rows(0)[0], max_ulp_error=1e6)]
    drifted = rows(0, max_ulp_error=8 * before)
    assert findings(rows(0, max_ulp_error=before), drifted) == [BaselineFinding.DRIFT]
    found = findings([*outlier, *rows(0, max_ulp_error=before)[1:]], [*outlier, *drifted[1:]])
    assert found == [BaselineFinding.DRIFT]
    # Other cases, whose errors are not the same to begin with.
    assert findings(rows(0, max_ulp_error=before), rows(1, max_ulp_error=8 * before), OTHER_SEED) == [
        BaselineFinding.DRIFT
    ]


def test_what_passes_at_last_passes_with_whatever_error() -> None:
    now = [replace(v, max_ulp_error=30.0) for v in rows(0)[:4]]
    assert findings(rows(0, fails=4), [*now, *rows(0)[4:]]) == [BaselineFinding.IMPROVEMENT]


def test_flaky_cases_are_neither_worse_nor_better() -> None:
    before, now = rows(0), rows(0, fails=2)
    flaky = frozenset(v.case_key for v in now[:2])
    assert findings(before, now, flaky=flaky) == [BaselineFinding.FLAKY]
    # A case that fails every time is still a regression.
    assert findings(before, rows(0, fails=8), flaky=flaky) == [
        BaselineFinding.REGRESSION,
        BaselineFinding.FLAKY,
    ]


def test_chance_is_no_regression_and_no_improvement() -> None:
    assert findings(rows(0), rows(1, fails=3), OTHER_SEED) == [BaselineFinding.WITHIN_CHANCE]
    assert findings(rows(0, fails=8), rows(1, fails=3), OTHER_SEED) == []
    assert findings(rows(0, fails=3), rows(1, fails=8), OTHER_SEED) == []
    # One structure of a dtype with a large error, as cancellation has it.
    before = [*rows(0), *rows(0, 1, dtype="float16", max_ulp_error=0.0)]
    now = [*rows(1), *rows(1, 1, dtype="float16", max_ulp_error=4096)]
    assert findings(before, now, OTHER_SEED) == []


def test_what_chance_does_not_explain_counts_with_other_cases() -> None:
    stopped = unsupported(rows(1))
    assert findings(rows(0), stopped, OTHER_SEED) == [BaselineFinding.REGRESSION]
    assert findings(unsupported(rows(0)), rows(1), OTHER_SEED) == [BaselineFinding.IMPROVEMENT]
    # One kind for another: nothing passes that did not.
    assert findings(unsupported(rows(0)), rows(1, fails=16), OTHER_SEED) == [BaselineFinding.NEW_FAILURE]
    # Of several kinds none alone is beyond chance.
    kinds = [replace(v, signature=f"kind {i % 8}") for i, v in enumerate(rows(1, fails=16))]
    found = findings(rows(0), kinds, OTHER_SEED)
    assert BaselineFinding.REGRESSION in found
    assert set(found) == {BaselineFinding.REGRESSION, BaselineFinding.WITHIN_CHANCE}


def test_few_structures_are_enough_where_all_of_them_change() -> None:
    for count, found in ((8, [BaselineFinding.REGRESSION]), (4, [BaselineFinding.WITHIN_CHANCE])):
        assert findings(rows(0, count), unsupported(rows(1, count)), OTHER_SEED) == found
    assert findings(unsupported(rows(0, 8)), rows(1, 8), OTHER_SEED) == [BaselineFinding.IMPROVEMENT]
    assert findings(rows(0, 8), rows(1, 8, fails=7), OTHER_SEED) == [BaselineFinding.WITHIN_CHANCE]


def test_the_values_of_one_structure_and_the_sizes_of_one_export_count_once() -> None:
    """Eight cases that fail for one reason are one event."""
    exported = unary("aten.relu.default", [1.0] * 999).json
    alike = [replace(v, structure_id="one") for v in rows(1, 8, fails=8)]
    assert findings(rows(0), [*alike, *rows(1)[8:]], OTHER_SEED) == [BaselineFinding.WITHIN_CHANCE]
    dynamic = [replace(v, shape_mode="dynamic", exported_invocation=v.invocation) for v in rows(0)]
    sizes = [replace(v, shape_mode="dynamic", exported_invocation=exported) for v in rows(1, 16, fails=16)]
    other = [replace(v, exported_invocation=v.invocation, shape_mode="dynamic") for v in rows(2)]
    assert findings(dynamic, [*sizes, *other], OTHER_SEED) == [BaselineFinding.WITHIN_CHANCE]


def test_with_another_budget_only_all_or_nothing_counts() -> None:
    """More structures are rarer ones: their share of failures says nothing."""
    before, many = rows(0, fails=2), rows(1, 100, fails=80)
    assert findings(before, many, OTHER_BUDGET) == []
    assert findings(before, unsupported(rows(1, 100)), OTHER_BUDGET) == [BaselineFinding.REGRESSION]
    assert findings(unsupported(rows(0)), rows(1, 100), OTHER_BUDGET) == [BaselineFinding.IMPROVEMENT]
    assert findings(rows(0, max_ulp_error=1), rows(1, 100, max_ulp_error=99), OTHER_BUDGET) == []


def test_cells_that_are_missing_are_told_where_they_should_be_there() -> None:
    both = [*rows(0), *rows(0, dtype="float64")]
    assert findings(rows(0), both) == [BaselineFinding.NEW_CELL]
    assert findings(both, rows(0)) == [BaselineFinding.GONE]
    # Which dtypes few draws come to is chance.
    assert findings(both, rows(1), OTHER_SEED) == []
    assert findings(rows(0), [*rows(1), *rows(1, dtype="float64")], OTHER_SEED) == []
    # What was not run is not missed.
    neg = [replace(v, overload="aten.neg.default") for v in rows(0)]
    assert findings([*neg, *rows(0)], rows(0)) == []
    assert findings(rows(0), [*neg, *rows(0)]) == [BaselineFinding.NEW_CELL]


def test_other_kernels_of_the_same_version_close_no_gate() -> None:
    def found(before: list[Verdict], now: list[Verdict], kernels: str) -> list[BaselineFinding]:
        expected = Baseline({cell.key: cell for cell in cells_of(before)}, {}, OPTIONS, "avx512")
        run = Baseline({cell.key: cell for cell in cells_of(now)}, {}, OPTIONS, kernels)
        return [difference.finding for difference in compare(expected, run)]

    grown = rows(0, max_ulp_error=64.0)
    assert found(rows(0), grown, "avx512") == [BaselineFinding.DRIFT]
    assert found(rows(0), grown, "avx2") == [BaselineFinding.MACHINE]
    # What a run of an earlier version does not say is taken to be the same.
    assert found(rows(0), grown, "") == [BaselineFinding.DRIFT]
    flushed = [*rows(0)[:15], replace(rows(0, fails=16)[15], signature="subnormals flushed to zero")]
    assert found(rows(0), flushed, "avx512") == [BaselineFinding.REGRESSION]
    assert found(rows(0), flushed, "avx2") == [BaselineFinding.MACHINE]
    # Where numbers are wrong already, other kernels make others wrong. A new wrong number is wrong on any machine.
    assert found(rows(0, fails=1), rows(0, fails=2), "avx512") == [BaselineFinding.REGRESSION]
    assert found(rows(0, fails=1), rows(0, fails=2), "avx2") == [BaselineFinding.MACHINE]
    assert found(rows(0), rows(0, fails=1), "avx2") == [BaselineFinding.REGRESSION]
    first, second = (rows(0, fails=fails, dtype="int64") for fails in (1, 2))
    assert found(first, second, "avx2") == [BaselineFinding.REGRESSION]
    assert not BaselineFinding.MACHINE.fails
