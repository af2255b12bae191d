"""Everything that a site is made of, computed once from the record of all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.core.dtypes import ALL
from harness.gate.case_changes import Changes, compare_cases
from harness.gate.run_request import RunRequest
from harness.present.dashboard.cells import ColumnCounts, Tallies, column_counts, ordinary_tallies, tallies
from harness.present.dashboard.coded import CodedRun, EvidenceChoice, Words, choose_evidence
from harness.present.dashboard.runs import COMPLETE, Gathered, SiteRun, asked_for, earlier_run, first_shown, gather
from harness.record.dictionary_encoding import Numbers
from harness.record.layout import ResultsError


@dataclass(frozen=True)
class Compared:
    """The comparison of the cases of two runs.

    Attributes:
        before: The number of the earlier run.
        changes: Changes of cases that both were asked for.
        unasked: Cases that one of them has and the other was not asked for.
    """

    before: int
    after: int
    changes: Changes
    unasked: int


@dataclass(frozen=True)
class SiteModel:
    """The runs of a site as numbers.

    Attributes:
        gathered: The runs, oldest first, and the directories that were set aside.
        coded: Their rows, without those of operators that a run has lost; `lost` has these per run.
        words: The meanings of the numbers.
    """

    gathered: Gathered
    coded: tuple[CodedRun, ...]
    words: Words
    lost: tuple[Numbers, ...]

    @property
    def runs(self) -> list[SiteRun]:
        """Oldest first."""
        return self.gathered.runs

    @cached_property
    def names(self) -> list[str]:
        """Operators as the page lists them: by name."""
        return sorted(self.words.operators.words)

    @cached_property
    def rank(self) -> Numbers:
        """Operator's number → its place in `names`."""
        place = {name: number for number, name in enumerate(self.names)}
        return np.array([place[name] for name in self.words.operators.words], dtype=np.int64)

    @cached_property
    def families(self) -> list[str]:
        """Return the family of each of `names`."""
        family = dict.fromkeys(self.names, "")
        for number, name in enumerate(self.words.operators.words):
            family[name] = self.words.families.get(number, "")
        return list(family.values())

    @cached_property
    def dtypes(self) -> list[str]:
        """Names by number."""
        return self.words.dtypes.words

    @cached_property
    def dtype_order(self) -> list[int]:
        """Numbers of dtypes in the order of the product's own list."""
        known = {name: place for place, name in enumerate(ALL)}
        return sorted(range(len(self.dtypes)), key=lambda n: (known.get(self.dtypes[n], len(known)), self.dtypes[n]))

    @cached_property
    def tallies(self) -> list[Tallies]:
        """Per run."""
        buckets = self.words.buckets
        return [tallies(run, buckets) for run in self.coded]

    @property
    def requests(self) -> list[RunRequest]:
        """Return the request of each run."""
        return [run.request for run in self.runs]

    @cached_property
    def shown(self) -> int:
        """The number of the run that is shown by default; −1 without any."""
        return first_shown(self.requests, [not len(run) for run in self.coded])

    @cached_property
    def ordinary_tallies(self) -> list[Tallies]:
        """Per run, of ordinary cases."""
        buckets = self.words.buckets
        return [ordinary_tallies(run, buckets) for run in self.coded]

    def counts_of(self, run: int) -> list[ColumnCounts]:
        """Return the counts of a run's columns, in the order of `columns_of`."""
        return column_counts(self.tallies[run], self.ordinary_tallies[run], self.columns_of(run), len(self.lost[run]))

    @cached_property
    def evidence(self) -> EvidenceChoice:
        """The runs of which the pages of operators show the evidence."""
        return choose_evidence(self.coded, self.shown)

    def columns_of(self, run: int) -> list[int]:
        """Return the numbers of the columns that a run has, by name."""
        names = self.words.column_names
        return sorted(np.unique(self.coded[run].column).tolist(), key=lambda number: names[number])

    def operators_of(self, run: int) -> Numbers:
        """Return the numbers of the operators in a run, including those that it has lost."""
        return np.union1d(self.coded[run].operator, self.lost[run])

    def flaky(self, run: int) -> npt.NDArray[np.uint64]:
        """Return the keys of the cases that are known to end in two ways."""
        return self.words.keys_of(self.runs[run].flaky)

    def changes(self, before: int, after: int) -> Compared:
        """Compare every case of two runs, without operators that one of them has lost."""
        lost = np.union1d(self.lost[before], self.lost[after])
        old, new = self.coded[before], self.coded[after]
        found = compare_cases(
            old,
            new,
            self.words.states,
            flaky=np.union1d(self.flaky(before), self.flaky(after)),
            left_out=(np.isin(old.operator, lost), np.isin(new.operator, lost)),
        )
        unasked = np.zeros(len(found.change), dtype=bool)
        for alone, run, rows, other in (
            (found.before < 0, after, found.after, before),
            (found.after < 0, before, found.before, after),
        ):
            unasked[alone] = ~self.asks(other, run)[rows[alone]]
        kept = Changes(*(values[~unasked] for values in (found.change, found.before, found.after)))
        return Compared(before, after, kept, int(unasked.sum()))

    def asks(self, run: int, other: int) -> npt.NDArray[np.bool_]:
        """Return the mask of another run's rows whose cases a run also requested."""
        coded = self.coded[other]
        cells = self.words.cells(coded.operator, coded.column, coded.dtype, coded.kind)
        return asked_for(self.requests[run], self.requests[other], cells)

    def compared(self, run: int) -> Compared | None:
        """Compare a run with the one before; None for the first of its kind."""
        if run == self.shown:
            return self._shown_compared
        before = earlier_run(self.requests, run)
        return None if before is None else self.changes(before, run)

    @cached_property
    def _shown_compared(self) -> Compared | None:
        before = earlier_run(self.requests, self.shown) if self.shown >= 0 else None
        return None if before is None else self.changes(before, self.shown)


def build(directories: Sequence[Path], progress: Callable[[str], None] = lambda words: None) -> SiteModel:
    """Read all runs; those that cannot be read are set aside. `progress` is called with each step."""
    gathered = gather(directories)
    words = Words()
    coded: list[CodedRun] = []
    for first in list(gathered.runs):
        run: SiteRun | None = first
        while run is not None:
            progress(f"reading {run.directory.name}")
            try:
                coded.append(words.code(run))
                break
            except (ResultsError, ValueError, TypeError) as error:
                run = gathered.set_aside(run, error)
    lost = _lost_operators(gathered.runs, coded, words)
    return SiteModel(
        gathered,
        tuple(_drop_operators(run, theirs) for run, theirs in zip(coded, lost, strict=True)),
        words,
        tuple(lost),
    )


def _lost_operators(runs: Sequence[SiteRun], coded: Sequence[CodedRun], words: Words) -> list[Numbers]:
    """Return, for each run, the operators whose results it has lost: those that it names as unfinished.

    A run may not name all that it was to do, if it or one of its shards is gone without a trace. Then it has
    also lost the operators of the nearest complete run of which it has no row. Operators that no complete run
    has cannot be known.
    """
    present = [np.unique(one.operator) for one in coded]
    whole = [n for n, run in enumerate(runs) if run.state == COMPLETE and run.request.full]
    lost = []
    for number, run in enumerate(runs):
        named = words.operators.numbers(sorted(run.unfinished))
        if run.request.full and not run.says_what_is_missing and whole:
            nearest = min(whole, key=lambda other: (abs(other - number), other))
            named = np.union1d(named, np.setdiff1d(present[nearest], present[number]))
        lost.append(np.unique(named))
    return lost


def _drop_operators(run: CodedRun, lost: Numbers) -> CodedRun:
    """Return a run's rows without those of operators that it has lost."""
    if not len(lost):
        return run
    keep = ~np.isin(run.operator, lost)
    return run.only(keep)
