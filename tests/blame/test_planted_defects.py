"""Slips planted in conversions: the default budget must find them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from harness_runs import output, rows, run_harness
from planted.defect import Defect
from planted.translations import DEFECTS

from harness.compare.verdict import Outcome
from harness.generate.case_library import load_cases

pytestmark = pytest.mark.slowest(1)

#: Slips that the default budget does not find, and why.
MISSED = {
    "clamp": "but for float32 and float bounds the exporter calls clamp.Tensor; no case of those has NaN",
    "avg_pool2d": "where rounding up matters ONNX Runtime has no kernel, or a window is all padding",
    "logdet": "every matrix that is drawn has a dominant, positive diagonal, and so a positive determinant",
}

#: Whose a failure is and how small it can be made are for other tests.
MEASURE_ONLY = ("--no-blame", "--shrink", "0")

#: Families whose operators ONNX has nothing for, so that no converter has a conversion to slip in.
WITHOUT_CONVERSION = {"conditioned", "factorization"}


#: Failing cases of each defect that are tried without the slip before the others are.
FEW = 8


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The defects that a case in the default budget shows: it fails with the slip and passes without it.

    Both conversions are the same function but for the slip, so that it is what the case fails for. One such
    case is enough: all failing cases are tried without the slip only where none of the first few shows it.
    """
    shown: set[str] = set()
    for converter in sorted({defect.converter for defect in DEFECTS}):
        defects = [defect for defect in DEFECTS if defect.converter == converter]
        directory: Path = tmp_path_factory.mktemp("defects")
        operators = [word for d in defects for word in ("--op", d.overload)]
        slipped = ("--results-dir", directory / "wrong", "--converter", converter)
        done = run_harness(*slipped, *operators, *MEASURE_ONLY, timeout=900)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
        failing: dict[str, list[str]] = defaultdict(list)
        for row in rows(directory / "wrong", "case_id", "overload", "outcome"):
            if Outcome(row["outcome"]).is_failure:
                failing[row["overload"]].append(row["case_id"])
        for tried in (slice(FEW), slice(FEW, None)):
            left = [d for d in defects if _id(d.name, converter) not in shown]
            cases = {case: d for d in left for case in failing[d.overload][tried]}
            chosen = [word for case in cases for word in ("--case", case)]
            if chosen:
                again = directory / f"right from {tried.start or 0}"
                honest = ("--results-dir", again, "--converter", converter.replace("wrong", "right"))
                done = run_harness("--replay", directory / "wrong", *chosen, *honest, *MEASURE_ONLY)
                assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), output(done)
                passing = [r["case_id"] for r in rows(again, "case_id", "outcome") if r["outcome"] == "pass"]
                shown |= {_id(cases[case].name, converter) for case in passing}
    return shown


def _id(name: str, converter: str) -> str:
    return f"{name}-{converter}"


def test_there_are_enough_defects_of_all_families() -> None:
    assert len(DEFECTS) >= 60
    assert len({(defect.overload, defect.converter) for defect in DEFECTS}) == len(DEFECTS)
    known = load_cases()
    planted = {known[defect.overload].family for defect in DEFECTS}
    assert planted == {case.family for case in known.values()} - WITHOUT_CONVERSION


def test_what_is_said_to_be_missed_is_a_slip() -> None:
    assert set(MISSED) <= {defect.name for defect in DEFECTS}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: _id(defect.name, defect.converter))
def test_a_slip_is_found_unless_it_is_known_to_be_missed(defect: Defect, caught: set[str]) -> None:
    assert (_id(defect.name, defect.converter) not in caught) == (defect.name in MISSED)
