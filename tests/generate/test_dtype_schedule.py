"""How often each dtype is drawn."""

from __future__ import annotations

from collections import Counter

from harness.core.dtypes import WIDE_UNSIGNED
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases, draw_invocations


def test_wide_unsigned_integers_take_a_small_share_of_the_draws() -> None:
    case = load_cases()["aten.eq.Tensor"]
    assert set(WIDE_UNSIGNED) < set(case.dtypes)
    calls = draw_invocations(case, seed=0, count=480)
    share = Counter(call.dtype for call in calls)
    wide = {dtype: share.pop(dtype) for dtype in WIDE_UNSIGNED}
    assert 480 / 24 < sum(wide.values()) < 480 / 12
    assert min(wide.values()) >= 480 / 16 // 3 - 1
    # The others keep theirs: a tenth each, of what promotion leaves.
    assert min(share.values()) > 480 / 16
    # The dozen or so structures of a default run of one operator have one, not of the same dtype everywhere.
    short = [Counter(call.dtype for call in draw_invocations(case, seed=seed, count=16)) for seed in range(6)]
    assert all(sum(found[dtype] for dtype in WIDE_UNSIGNED) == 1 for found in short)
    assert len({dtype for found in short for dtype in WIDE_UNSIGNED if found[dtype]}) > 1
    alone = draw_cases(case, seed=0, structures=9, values=1, dtypes=WIDE_UNSIGNED)
    assert {found.invocations[0].dtype for found in alone} == set(WIDE_UNSIGNED)
