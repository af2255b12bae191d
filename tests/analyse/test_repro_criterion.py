"""What a script accepts by its plain rule, the rule of the harness accepts too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from harness.analyse.repro.criterion import _NEAR
from harness.compare import ACCUMULATES, CLOSE, Judge, tolerance_of
from harness.compare.nearness import right_elements
from harness.core import Array


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
    arguments: Any = None


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("judge", [CLOSE, ACCUMULATES])
def test_a_script_accepts_what_the_harness_accepts(judge: Judge, dtype: str) -> None:
    scope: dict[str, Any] = {"torch": torch}
    exec(_NEAR, scope)
    rng = np.random.default_rng(5)
    truth = np.concatenate(
        [rng.normal(size=4000) * 10.0 ** rng.integers(-6, 4, 4000), [np.inf, -np.inf, np.nan]]
    )
    with np.errstate(all="ignore"):
        expected, got = (
            (truth * (1 + rng.normal(size=truth.size) * 10.0 ** rng.uniform(-9, -1, truth.size))).astype(
                dtype
            )
            for _ in range(2)
        )
        got[::17], got[5::17], expected[7::17] = np.inf, np.nan, np.inf
        terms = np.abs(truth) * 10.0
        answers = Answers((expected,), (truth,), (terms,) if judge.accumulates else None, arguments={})
        ours = right_elements(judge, answers, 0, expected.astype(float), got.astype(float), None)
    tolerance = tolerance_of(judge, dtype)
    numbers = (torch.from_numpy(a) for a in (got, expected, truth, terms if judge.accumulates else truth))
    theirs = scope["near"](*numbers, tolerance.rtol, tolerance.atol).numpy()
    assert not (theirs & ~ours).any()
    # It is stricter only about what overflows, and about infinities beside PyTorch's own.
    assert not (ours & ~theirs & np.isfinite(got) & np.isfinite(expected)).any()
    assert 0 < theirs.sum() < theirs.size
