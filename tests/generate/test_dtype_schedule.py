"""Each dtype gets its share of the draws."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.core.dtypes import COMPLEX, WIDE_UNSIGNED
from harness.core.invocation import Invocation
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases, draw_invocations
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import NothingToCompare


def test_wide_unsigned_integers_take_a_small_share_of_the_draws() -> None:
    case = load_cases()["aten.eq.Tensor"]
    assert set(WIDE_UNSIGNED) < set(case.dtypes)
    calls = draw_invocations(case, seed=0, count=480)
    share = Counter(call.dtype for call in calls)
    wide = {dtype: share.pop(dtype) for dtype in WIDE_UNSIGNED}
    for dtype in case.gaps:
        del share[dtype]
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


def test_complex_numbers_take_a_small_share_of_the_draws_where_they_are_rare() -> None:
    case = load_cases()["aten.flip.default"]
    assert set(COMPLEX) < set(case.dtypes)
    share = Counter(call.dtype for call in draw_invocations(case, seed=0, count=480))
    assert 480 / 12 < sum(share[dtype] for dtype in COMPLEX) < 480 / 6
    assert min(share[dtype] for dtype in COMPLEX) > 480 / 24
    short = [Counter(call.dtype for call in draw_invocations(case, seed=seed, count=16)) for seed in range(6)]
    assert all(sum(found[dtype] for dtype in COMPLEX) for found in short)
    # Fourier transforms are about them.
    often = Counter(call.dtype for call in draw_invocations(load_cases()["aten.fft_fft.default"], seed=0, count=96))
    assert min(often[dtype] for dtype in COMPLEX) >= 96 / len(often) - 1


def test_dtypes_that_no_converter_takes_are_drawn_a_few_times() -> None:
    case = load_cases()["aten.unsqueeze.default"]
    assert set(case.gaps) == set(COMPLEX)
    share = Counter(call.dtype for call in draw_invocations(case, seed=0, count=320))
    assert sum(share[dtype] for dtype in COMPLEX) == 320 / 64
    # A default run has 64 structures.
    assert any(call.dtype in COMPLEX for call in draw_invocations(case, seed=1, count=64))
    asked = draw_cases(case, seed=0, structures=6, values=1, dtypes=["complex64"])
    assert {found.invocations[0].dtype for found in asked} == {"complex64"}


@pytest.mark.slow
def test_pytorch_takes_what_is_drawn_of_complex_numbers() -> None:
    rare = [case for case in load_cases().values() if set(COMPLEX) & {*case.rare, *case.gaps}]
    assert len(rare) > 400
    calls = [
        one.invocations[0] for case in rare for one in draw_cases(case, seed=3, structures=6, values=1, dtypes=COMPLEX)
    ]
    refused = [call for call in calls if not _is_taken(call)]
    assert len(refused) <= len(calls) / 100, sorted({call.overload for call in refused})
    scalars = [a for call in calls for _, a in call.arguments if isinstance(a, complex)]
    assert any(number.real for number in scalars)
    assert any(number.imag for number in scalars)


def _is_taken(call: Invocation) -> bool:
    try:
        run_reference(call)
    except NothingToCompare:
        return True
    except Exception:
        return False
    return True
