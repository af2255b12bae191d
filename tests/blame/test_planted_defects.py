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


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Defect → how many cases fail with the slip and pass without it, in the default budget.

    Both conversions are the same function but for the slip, so that it is what the case fails for.
    """
    failing: dict[tuple[str, str], set[str]] = defaultdict(set)
    passing: dict[tuple[str, str], set[str]] = defaultdict(set)
    for converter in sorted({defect.converter for defect in DEFECTS}):
        operators = [word for d in DEFECTS if d.converter == converter for word in ("--op", d.overload)]
        directory: Path = tmp_path_factory.mktemp("defects") / "run"
        both = ("--converter", converter, "--converter", converter.replace("wrong", "right"))
        done = run_harness("--results-dir", directory, *both, *operators, *MEASURE_ONLY, timeout=900)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
        for row in rows(directory, "case_id", "overload", "converter", "outcome"):
            key = row["overload"], row["converter"]
            if row["outcome"] == "pass":
                passing[key].add(row["case_id"])
            elif Outcome(row["outcome"]).is_failure:
                failing[key].add(row["case_id"])
    return {
        _id(d.name, d.converter): len(
            failing[d.overload, d.converter] & passing[d.overload, d.converter.replace("wrong", "right")]
        )
        for d in DEFECTS
    }


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
def test_a_slip_is_found_unless_it_is_known_to_be_missed(defect: Defect, caught: dict[str, int]) -> None:
    assert (caught[_id(defect.name, defect.converter)] == 0) == (defect.name in MISSED)
