"""How many root causes there are, by those that several runs found."""

from __future__ import annotations

import random

from harness.causes.cause import RootCause
from harness.causes.richness import estimate_causes


def causes(*places: int) -> set[RootCause]:
    return {RootCause("converter", "torchlib", f"place {place}", "wrong") for place in places}


def test_one_run_tells_nothing_of_what_it_missed() -> None:
    assert estimate_causes([causes(1, 2, 3)]) is None


def test_runs_that_find_the_same_have_found_all() -> None:
    assert estimate_causes([causes(*range(9))] * 3) == 9


def test_the_estimate_follows_from_causes_of_one_and_of_two_runs() -> None:
    # Five causes; three of one run only, and one of two runs: 5 + 2/3 · 3·2 / (2·2).
    assert estimate_causes([causes(0, 1, 2), causes(0, 1, 3), causes(0, 4)]) == 6


def test_the_estimate_is_near_the_truth_where_runs_find_at_random() -> None:
    chance = random.Random(7)
    found = [causes(*(place for place in range(400) if chance.random() < 0.6)) for _ in range(4)]
    assert 380 < (estimate_causes(found) or 0) < 420
    assert len(set().union(*found)) < 400
