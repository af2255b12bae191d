"""Numbers drawn at random are compared by form, and a failure is searched for in several runs."""

from __future__ import annotations

import numpy as np
import pytest
from harness_runs import unary, vector

from harness.compare.comparison import compare
from harness.compare.drawn import draws
from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import first_wrong
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.reference import run_reference

BERNOULLI = Invocation("aten.bernoulli.p", (("self", vector([0.0] * 200)), ("p", 0.75)))
RAND_LIKE = Invocation("aten.rand_like.default", (("self", vector([0.0] * 200, "float16")),))
#: Up to the largest number of the dtype.
WITHOUT_END = [
    Invocation("aten.random.from", (("self", vector([0.0] * 200, dtype)), ("from", 5), ("to", None)))
    for dtype in ("float16", "uint32", "int8")
]


def judged(call: Invocation, got: Array) -> OutputComparison:
    load_cases()
    return compare(judge_of(call), run_reference(call), [got])


def test_the_statistic_its_bound_and_the_sample_are_reported() -> None:
    found = judged(BERNOULLI, np.zeros(200, dtype=np.float32))
    # All zeros where a quarter is right; ε = √(ln(2·10⁹) / 400).
    assert found.message == (
        "values: output 0: the distribution is 0.7500 from the right one, at most 0.2314 is allowed for a "
        "sample of 200 (drawn: 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, …)"
    )
    assert found.mismatched_elements == 200


def test_a_number_that_is_never_drawn_is_named() -> None:
    drawn = np.linspace(0, 0.99, 200, dtype=np.float16)
    assert judged(RAND_LIKE, drawn).problem is None
    drawn[7] = 1.0
    found = judged(RAND_LIKE, drawn)
    assert found.message == "values: output 0[7]: 1.0 cannot be drawn there (1 of 200 elements cannot)"
    assert found.mismatched_elements == 1


@pytest.mark.parametrize("call", [BERNOULLI, RAND_LIKE, *WITHOUT_END])
def test_pytorch_itself_draws_rightly(call: Invocation) -> None:
    load_cases()
    assert draws(judge_of(call))
    assert judged(call, run_reference(call).expected[0]).problem is None


def test_runs_are_taken_until_one_fails() -> None:
    def taken(call: Invocation, failing: int = 0, most: int = 1000) -> int:
        load_cases()
        reference, run = run_reference(call), 1
        (right,) = reference.expected

        def again() -> list[Array]:
            nonlocal run
            run += 1
            return [np.full_like(right, 1.0) if run == failing else right]

        first_wrong(judge_of(call), reference, [right], again, most)
        return run

    few, many = (
        Invocation("aten.rand_like.default", (("self", vector([0.0] * size, "float16")),)) for size in (6, 2**15)
    )
    assert taken(few) == 1000
    assert taken(few, failing=40) == 40
    assert taken(few, most=5) == 5
    # As many elements say as much.
    assert taken(many) == 8
    # What is computed is the same in each run.
    assert taken(unary("aten.relu.default", [1.0])) == 1
