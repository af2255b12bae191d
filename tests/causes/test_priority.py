"""Failures that models meet, silently, in ordinary use come first."""

from __future__ import annotations

import json

from harness_runs import row_of

from harness.causes.groups import failure_groups
from harness.causes.model_use import UseWeights, model_use
from harness.causes.priority import IN_HALF, UNSEEN, Callers, callers_of_failure
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.generate.case_library import load_cases
from harness.generate.cases_home import cases_directory
from harness.present import matrix
from harness.record.parquet import to_table


def verdict(number: int, overload: str, *shape: int, **changes: object) -> Verdict:
    spec = TensorSpec(shape, "float32", (1,) * len(shape), 0, Literal((0.5,) * max(1, *shape, 1)))
    call = Invocation(overload, (("self", spec),))
    return row_of(call, case_id=f"{number:012x}", family="any", **changes)


def failure(number: int, overload: str, *shape: int, outcome: Outcome = Outcome.MISMATCH) -> Verdict:
    how = {"outcome": outcome, "signature": f"as {outcome}", "message": f"as {outcome}", "stage": Stage.RUN}
    return verdict(number, overload, *shape, **how)


def test_what_models_meet_comes_before_what_fails_in_many_cases() -> None:
    rows = [failure(n, "aten.special_bessel_y1.default", 2) for n in range(30)]
    rows += [failure(50, "aten.gelu.default", 2)]
    found = failure_groups(to_table(rows, "run"))
    assert [group.overloads[0] for group in found] == ["aten.gelu.default", "aten.special_bessel_y1.default"]
    first, last = found
    # Models call gelu; whether they make this call is not known.
    assert first.callers == last.callers == 0
    assert 1 > first.priority > last.priority > 0


def test_wrong_numbers_outrank_refusals_and_ordinary_cases_edges() -> None:
    rows = [failure(n, "aten.gelu.default", 2, outcome=Outcome.UNSUPPORTED) for n in range(9)]
    rows += [failure(20, "aten.silu.default", 2)]
    # A 0-d tensor is an edge.
    rows += [failure(n, "aten.sigmoid.default") for n in range(30, 40)]
    order = [group.overloads[0] for group in failure_groups(to_table(rows, "run"))]
    assert order == ["aten.silu.default", "aten.gelu.default", "aten.sigmoid.default"]


def test_rates_are_weighted_by_the_models_that_call_an_operator() -> None:
    use = UseWeights((("a", "own"), ("b", "own"), ("c", "own")), {
        "aten.gelu.default": {"float32": {0: 9, 1: 1, 2: 1}},
        "aten.silu.default": {"float32": {1: 1}},
    })  # fmt: skip
    rows = [verdict(1, "aten.gelu.default", 2), failure(2, "aten.silu.default", 2)]
    rows += [failure(n, "aten.erfinv.default", 2) for n in range(10, 20)]
    [rate] = matrix.weighted_rates(to_table(rows, "run"), use)
    assert (rate.ordinary, rate.edge, rate.models) == (0.75, None, 3)


def test_the_counts_that_are_checked_in_are_of_many_kinds_of_models() -> None:
    data = json.loads((cases_directory() / "operator_use.json").read_text(encoding="utf-8"))
    use = model_use()
    assert len(use.models) == len(data["models"]) >= 60
    assert {"vision", "text", "audio", "detection", "diffusion", "segmentation"} <= {k for _, k in use.models}
    dtypes = {dtype for calls in use.calls.values() for dtype in calls}
    assert {"float32", "float16", "bfloat16", "int64", "bool"} <= dtypes
    assert use.attributes["aten.gelu.default"]["approximate"]['"tanh"'] > 0
    # Those without an operator case only make memory, or write into it.
    assert len(use.calls.keys() - load_cases().keys()) < 0.2 * len(use.calls)


def test_callers_are_the_models_whose_own_calls_fail() -> None:
    use, pair = model_use(), ("aten.dropout.default", "float32")
    seen = {"aaa": (1, 2, 3), "bbb": (3, 4)}
    as_made = {"aaa": (1, 2, 3)}
    found = callers_of_failure(["aaa", "bbb", "ccc"], [pair], [pair], use, seen, as_made)
    assert found == Callers(4, use.share(3 + IN_HALF))
    # No model calls what fails here, however many call the operator.
    unseen = callers_of_failure(["ccc"], [pair], [pair], use, seen, as_made)
    guessed = callers_of_failure(["ccc"], [pair], [pair], use, {}, {})
    assert (unseen.number, unseen.use) == (0, UNSEEN * guessed.use)
    assert guessed.number == 0
