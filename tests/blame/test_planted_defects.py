"""Slips planted in conversions: the default budget must find them, and blame must name the converter.

Twelve slips of different families and kinds are tried by default, and all of them with ``--thorough``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness_runs import output, rows, run_harness
from planted.defect import Defect
from planted.translations import DEFECTS

from harness.compare.verdict import Outcome
from harness.generate.case_library import load_cases

pytestmark = pytest.mark.slowest(3)

DYNAMO, TORCHSCRIPT = "planted-wrong", "planted-wrong-torchscript"

#: The slips of dynamo's conversions that are tried by default, each of another family.
SAMPLE = {"roll", "nll_loss", "round_ties", "avg_pool2d"}
#: Slips that the default budget does not find, and why.
MISSED: Mapping[str, str] = {}

#: Families whose operators ONNX has nothing for, that of ONNX's own, which the exporter passes on, and that of
#: operators that take functions, which it translates by itself: no converter has a conversion to slip in.
WITHOUT_CONVERSION = {"conditioned", "control_flow", "factorization", "onnx_operators"}

#: How small a failure can be made is for other tests.
AS_DRAWN = ("--shrink", "0")
#: Nor is it always asked whose it is.
MEASURE_ONLY = ("--no-blame", *AS_DRAWN)

#: The first cases of the default budget, which show most slips; the others are drawn for the rest.
FIRST = 32
#: Failing cases of each defect that are tried without the slip before the others are.
FEW = 8

#: Wrong conversions with some cases that are blamed on PyTorch or stay unknown, and why.
UNCLEAR = {
    "aten.arange.start_step": "dynamo cannot convert these calls, and no other runtime runs the model",
    "aten.gather.default": "onnx-reference refuses an index smaller than the data: no other runtime speaks",
    "aten.round.decimals": "PyTorch's own result leaves the range on the way, as the wrong one does",
    "aten.scatter.value": "ort-cpu refuses an empty index that is longer than the data, in a valid graph",
    "aten.logit.default": "PyTorch's own result is as far from float64 as the wrong one",
    "aten.select.int": "PyTorch gives the wrong answer itself for a row-major copy, which is blamed on it",
}
#: Wrong conversions that need more than the first cases.
NEED_MORE = {
    *("aten._to_copy.default", "aten.cat.default", "aten.clamp.default", "aten.conv1d.default"),
    *("aten.conv2d.default", "aten.elu.default", "aten.full_like.default", "aten.ge.Scalar"),
    *("aten.gelu.default", "aten.isclose.default", "aten.layer_norm.default", "aten.logaddexp.default"),
    *("aten.logdet.default", "aten.max_pool2d.default", "aten.mean.dim", "aten.mm.default", "aten.mse_loss.default"),
    *("aten.scatter_add.default", "aten.slice.Tensor", "aten.softmax.int", "aten.softplus.default"),
    "aten.upsample_nearest2d.default",
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """Cases with the slips of one converter."""

    directory: Path
    rows: Sequence[Row]

    def failing(self) -> dict[str, list[str]]:
        """The cases of each overload that fail."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in self.rows:
            if Outcome(row["outcome"]).is_failure:
                found[row["overload"]].append(row["case_id"])
        return found

    def passing(self, cases: Iterable[str], *converters: str) -> dict[str, set[str]]:
        """Return the cases that pass with each of some converters, by converter."""
        passing: dict[str, set[str]] = defaultdict(set)
        chosen = [word for case in cases for word in ("--case", case)]
        if chosen:
            again = self.directory / f"again {len(list(self.directory.parent.rglob('again *')))}"
            words = [word for name in converters for word in ("--converter", name)]
            done = run_harness("--replay", self.directory, *chosen, *words, "--results-dir", again, *MEASURE_ONLY)
            assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), output(done)
            for row in rows(again, "case_id", "converter", "outcome"):
                if row["outcome"] == "pass":
                    passing[row["converter"]].add(row["case_id"])
        return passing

    def shown(self, failing: Mapping[str, Sequence[str]], converter: str) -> set[str]:
        """The overloads of which a failing case passes with the conversion without its slip.

        All are tried only where the first few fail anyway.
        """
        found: set[str] = set()
        for tried in (slice(FEW), slice(FEW, None)):
            cases = {case: name for name in failing.keys() - found for case in failing[name][tried]}
            found |= {cases[case] for case in self.passing(cases, right(converter))[right(converter)]}
        return found


def swept(directory: Path, converter: str, overloads: Collection[str], *more: str) -> Sweep:
    """Draw the cases of these operators, and convert them with the slips."""
    operators = [word for overload in sorted(overloads) for word in ("--op", overload)]
    done = run_harness("--results-dir", directory, "--converter", converter, *operators, *more, timeout=900)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    return Sweep(directory, rows(directory, "case_id", "overload", "outcome", "blame", "evidence"))


@pytest.fixture(scope="module")
def tried(request: pytest.FixtureRequest) -> set[str]:
    """The overloads of dynamo's slips that this session has tests of."""
    parameters = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    defects = (found["defect"] for found in parameters if isinstance(found.get("defect"), Defect))
    return {defect.overload for defect in defects if defect.converter == DYNAMO}


def right(converter: str) -> str:
    """The same conversions without the slips, so that it is the slip that a case fails for."""
    return converter.replace("wrong", "right")


@dataclass(frozen=True)
class First:
    """The first cases with dynamo, and those that fail with a slip and pass without it.

    Attributes:
        honest: The failing cases that pass with PyTorch's own conversion.
        shown: The overloads that have a failing case which passes once the slip is taken out.
    """

    sweep: Sweep
    honest: Collection[str]
    shown: Collection[str]


@pytest.fixture(scope="module")
def first(tried: set[str], tmp_path_factory: pytest.TempPathFactory) -> First:
    directory = tmp_path_factory.mktemp("first") / "wrong"
    sweep = swept(directory, DYNAMO, tried, "--examples", str(FIRST), *AS_DRAWN)
    failing = sweep.failing()
    honest = sweep.passing([case for cases in failing.values() for case in cases], "dynamo")["dynamo"]
    return First(sweep, honest, sweep.shown(failing, DYNAMO))


@pytest.fixture(scope="module")
def caught_in_dynamo(first: First, tried: set[str], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The overloads of the slips that a case in the default budget shows.

    It fails with the slip and passes without it. One such case is enough: more are drawn only where the
    first do not show the slip.
    """
    missed = tried - set(first.shown)
    if not missed:
        return set(first.shown)
    sweep = swept(tmp_path_factory.mktemp("all") / "wrong", DYNAMO, missed, *MEASURE_ONLY)
    # What the first cases show, the default budget shows.
    drawn = {row["case_id"] for row in sweep.rows}
    assert {r["case_id"] for r in first.sweep.rows if r["overload"] in missed} <= drawn
    failing = {name: cases for name, cases in sweep.failing().items() if name in missed}
    return {*first.shown, *sweep.shown(failing, DYNAMO)}


@pytest.fixture(scope="module")
def caught_in_torchscript(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The overloads of the slips in TorchScript's conversions that a case in the default budget shows."""
    left = {defect.overload for defect in planted_defects(TORCHSCRIPT)}
    sweep = swept(tmp_path_factory.mktemp("all") / "wrong", TORCHSCRIPT, left, *MEASURE_ONLY)
    failing = {name: cases for name, cases in sweep.failing().items() if name in left}
    return sweep.shown(failing, TORCHSCRIPT)


def test_there_are_enough_defects_of_all_families() -> None:
    assert len(DEFECTS) >= 60
    assert len({(defect.overload, defect.converter) for defect in DEFECTS}) == len(DEFECTS)
    known = load_cases()
    planted = {known[defect.overload].family for defect in DEFECTS}
    assert planted == {case.family for case in known.values()} - WITHOUT_CONVERSION


def test_every_known_miss_is_a_slip() -> None:
    assert set(MISSED) <= {defect.name for defect in DEFECTS}


def planted_defects(converter: str) -> list[Defect]:
    return [defect for defect in DEFECTS if defect.converter == converter]


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(defect, marks=() if defect.name in SAMPLE else pytest.mark.slow, id=defect.name)
        for defect in planted_defects(DYNAMO)
    ],
)
def test_a_slip_is_found_unless_it_is_known_to_be_missed(defect: Defect, caught_in_dynamo: set[str]) -> None:
    assert (defect.overload not in caught_in_dynamo) == (defect.name in MISSED)


@pytest.mark.thorough
@pytest.mark.parametrize("defect", planted_defects(TORCHSCRIPT), ids=lambda defect: defect.name)
def test_a_slip_of_torchscript_is_found_unless_it_is_known_to_be_missed(
    defect: Defect, caught_in_torchscript: set[str]
) -> None:
    assert (defect.overload not in caught_in_torchscript) == (defect.name in MISSED)


# Each job blames the slips that it tries.
@pytest.mark.parametrize("slips", [pytest.param("sample"), pytest.param("others", marks=pytest.mark.slow)])
def test_wrong_conversions_are_blamed_on_the_converter(slips: str, first: First, tried: set[str]) -> None:
    # Only what the honest exporter does right can show the planted defect.
    failures = [
        row for row in first.sweep.rows if row["outcome"] in ("mismatch", "error") and row["case_id"] in first.honest
    ]
    assert tried - NEED_MORE <= {row["overload"] for row in failures}
    assert all(row["evidence"] for row in failures)
    wrong = [row for row in failures if row["blame"] != "converter" and row["overload"] not in UNCLEAR]
    assert wrong == []
