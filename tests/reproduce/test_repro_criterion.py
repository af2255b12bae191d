"""The rule of the harness accepts every result that the plain rule of a script accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from harness_runs import vector
from recorded_rows import row_of

from harness.compare.judge import ACCUMULATES, CLOSE, Judge
from harness.compare.nearness import right_elements, tolerance_of
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.reference import run_reference
from harness.reproduce.call_source import CallSource
from harness.reproduce.criterion import _NEAR, criterion
from harness.reproduce.failure import ReproducibleFailure


@dataclass
class Answers:
    """An oracle of given numbers."""

    expected: tuple[Array, ...]
    truth: tuple[Array, ...]
    magnitude: tuple[Array, ...] | None = None
    unscaled: None = None
    marked: None = None
    sensitivity: None = None
    flushed: None = None
    definition: None = None
    finite_terms: tuple[None, None] = (None, None)
    arguments: Any = None


def test_a_script_asks_for_the_ends_of_what_is_drawn_as_the_harness_does() -> None:
    load_cases()
    call = Invocation("aten.rand_like.default", (("self", vector([0.0] * 4, "float16")),))
    failure = ReproducibleFailure(
        verdict=row_of(
            call,
            converter="dynamo",
            backend="ort-cpu",
            stage=Stage.COMPARE,
            outcome=Outcome.MISMATCH,
            signature="values",
        ),
        invocation=call,
        exported=call,
    )
    found = criterion(failure, judge_of(call), run_reference(call), CallSource(call))
    torch.manual_seed(0)
    # PyTorch never rounds up to 1, float32 numbers that are cast do: once in 4,096.
    runs = torch.rand((2, found.runs, 4), dtype=torch.float16)
    scope: dict[str, Any] = {"torch": torch, "outputs": [runs[0]], "expected": [runs[1]]}
    script = "\n".join([*found.helpers, *found.lines])
    exec(script, scope)
    runs[0, 3, 2] = 1.0
    with pytest.raises(AssertionError, match=r"drawn from outside of \[0, 1\): \[1.0\]"):
        exec(script, scope)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("judge", [CLOSE, ACCUMULATES])
def test_a_script_accepts_what_the_harness_accepts(judge: Judge, dtype: str) -> None:
    scope: dict[str, Any] = {"torch": torch}
    exec(_NEAR, scope)
    rng = np.random.default_rng(5)
    truth = np.concatenate([rng.normal(size=4000) * 10.0 ** rng.integers(-6, 4, 4000), [np.inf, -np.inf, np.nan]])
    with np.errstate(all="ignore"):
        expected, got = (
            (truth * (1 + rng.normal(size=truth.size) * 10.0 ** rng.uniform(-9, -1, truth.size))).astype(dtype)
            for _ in range(2)
        )
        got[::17], got[5::17], expected[7::17] = np.inf, np.nan, np.inf
        terms = np.abs(truth) * 10.0
        answers = Answers((expected,), (truth,), (terms,) if judge.accumulates else None, arguments={})
        ours, _ = right_elements(judge, answers, 0, expected.astype(float), got.astype(float), None)
    tolerance = tolerance_of(judge, dtype)
    numbers = (torch.from_numpy(a) for a in (got, expected, truth, terms if judge.accumulates else truth))
    theirs = scope["near"](*numbers, tolerance.rtol, tolerance.atol).numpy()
    assert not (theirs & ~ours).any()
    # It is stricter only about overflow, and about infinities other than PyTorch's own.
    assert not (ours & ~theirs & np.isfinite(got) & np.isfinite(expected)).any()
    assert 0 < theirs.sum() < theirs.size
