"""Count the root causes of several runs, and estimate how many there are.

Runs with other seeds find other root causes. How many more there are follows from those that only one run or exactly
two runs found, as the number of species in a forest does from those seen on one or two visits: the bias-corrected Chao2
estimate (A. Chao, "Estimating the population size for capture-recapture data with unequal catchability", Biometrics
43, 1987; A. Chao and C.-H. Chiu, "Species richness: estimation and comparison", Wiley StatsRef, 2016, eq. 9). It is a
lower bound: what no draw can reach is not counted. Runs have to be independent samples, so a case that a corpus kept
from an earlier run does not count as found again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from harness.causes.cause import RootCause
from harness.causes.groups import FAILED
from harness.causes.rows import CAUSE_INPUTS, PROBLEMS, CodedRows, each_problem
from harness.compare.verdict import SPEC
from harness.generate.sources.corpus import FromFile
from harness.record import store

#: Rows of cases that were kept from earlier runs.
_KEPT = pc.field("source") == FromFile.name


@dataclass(frozen=True)
class CausesOfRuns:
    """The root causes that several runs found.

    Attributes:
        each: The number of root causes that each run drew, the latest run first.
        together: The number of root causes that all runs drew.
        new: The number of root causes that only the latest run drew.
        kept: The number of further root causes that cases kept from earlier runs show in the latest run.
        estimated: The estimated number of root causes that exist, a lower bound; None for a single run.
    """

    each: tuple[int, ...]
    together: int
    new: int
    kept: int
    estimated: int | None


def causes_of_runs(run: Path, earlier: Sequence[Path]) -> CausesOfRuns:
    """Compare the root causes of a run with those of earlier ones.

    Args:
        run: The directory of the run.
        earlier: The directories of the other runs.

    Raises:
        harness.record.layout.ResultsError: a run cannot be read.
    """
    found = [_causes(directory, ~_KEPT) for directory in (run, *earlier)]
    others = frozenset[RootCause]().union(*found[1:])
    return CausesOfRuns(
        each=tuple(map(len, found)),
        together=len(found[0] | others),
        new=len(found[0] - others),
        kept=len(_causes(run, _KEPT) - found[0]),
        estimated=estimate_causes(found),
    )


def estimate_causes(found: Sequence[Collection[RootCause]]) -> int | None:
    """Return the bias-corrected Chao2 estimate of the number of root causes; None for a single run.

    S + (m - 1) / m · q₁(q₁ - 1) / (2(q₂ + 1)), where m runs found S of them, q₁ of them in one run only and q₂ in
    exactly two.
    """
    runs = len(found)
    if runs < 2:
        return None
    times = Counter(Counter(cause for causes in found for cause in set(causes)).values())
    unseen = (runs - 1) / runs * times[1] * (times[1] - 1) / (2 * (times[2] + 1))
    return round(times.total() + unseen)


def _causes(run: Path, where: pc.Expression) -> frozenset[RootCause]:
    """Return the root causes of some failures of a run, without those that a specification leaves open."""
    rows = CodedRows(each_problem(store.read(run, (*CAUSE_INPUTS, PROBLEMS), FAILED & where, encoded=True))[0])
    causes = rows.causes[0] if len(rows) else ()
    return frozenset(cause for cause in causes if cause.blame != SPEC)
