"""Pairs of choices come early: in fewer cases than chance needs."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest

from harness.core.invocation import TensorSpec
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.provider import Covering


def test_every_pair_comes_as_soon_as_there_is_room_for_it() -> None:
    covering = Covering(Random(0).randrange)
    options = dict.fromkeys("abcde", 1)
    met = {(point, covering.choose("place", options, [point])) for _ in range(5) for point in range(7)}
    assert met == set(product(range(7), "abcde"))


def test_options_come_in_proportion_to_their_weights_at_every_point() -> None:
    covering = Covering(Random(0).randrange)
    chosen = Counter(
        (point, covering.choose("place", {"often": 3, "seldom": 1}, [point, "all"]))
        for _ in range(80)
        for point in range(3)
    )
    assert all(55 <= chosen[point, "often"] <= 65 for point in range(3))


def test_a_point_that_is_rare_meets_another_option_each_time() -> None:
    chance = Random(1)
    covering = Covering(chance.randrange)
    rare = []
    for turn in range(60):
        point = "rare" if turn % 10 == 5 else "usual"
        chosen = covering.choose("place", dict.fromkeys(range(6), 1), [point])
        rare += [chosen] if point == "rare" else []
    assert sorted(rare) == list(range(6))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_dtype_has_most_ranks_and_layouts_in_a_run(seed: int) -> None:
    case = load_cases()["aten.abs.default"]
    met: set[tuple[str, str | int]] = set()
    for drawn in draw_cases(case, seed=seed, structures=56, values=1):
        for spec in drawn.invocations[0].tensors():
            met.add((spec.dtype, _layout(spec)))
            met.add((spec.dtype, min(len(spec.shape), 4)))
    dtypes = [dtype for dtype in case.dtypes if dtype not in (*case.rare, *case.gaps)]
    wanted = set(product(dtypes, (*range(5), "contiguous", "other")))
    assert len(wanted & met) >= 0.85 * len(wanted)


def _layout(spec: TensorSpec) -> str:
    return "contiguous" if spec.is_contiguous else "other"
