"""Earlier runs to take verdicts from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.compare import CaseKey, Outcome, Verdict
from harness.execute import OWN_FAULT
from harness.plan.reuse.keys import VerdictScope, differences
from harness.record import (
    RULES,
    SOURCE,
    ResultsError,
    RunInfo,
    completeness,
    layout,
    progress,
    read_flaky,
    read_run_info,
    store,
    to_verdicts,
)

#: Directories below a data set in which runs are looked for.
_DEPTH = 3

#: What a process died of, or how long it took, may have been the machine's.
_VOLATILE = frozenset({Outcome.CRASH, Outcome.TIMEOUT})


@dataclass(frozen=True)
class EarlierRun:
    """A run that was recorded.

    Attributes:
        directory: Where.
        info: Its ``run.json``.
        rules: Of the rules that took part, as its basis says; "" for none.
    """

    directory: Path
    info: RunInfo
    rules: str

    def allows(self, now: RunInfo, place: VerdictScope) -> bool:
        """Whether a passing verdict of `place` would come out the same in the run `now`."""
        return not differences(self.info, now, place, self.rules)

    def unit(self, overload: str, converter: str, shape_mode: str) -> list[Verdict]:
        """Its rows of one unit, in their order; none where it did not come to its end.

        Raises:
            ResultsError: the record is damaged.
        """
        word = converter if shape_mode == "static" else f"{converter}-{shape_mode}"
        if not self._finished(overload, word):
            return []
        places = self._places.get(overload)
        if places is None:
            return []
        chosen = self._table.take(pa.array(places))
        of_unit = (pc.field("converter") == converter) & (pc.field("shape_mode") == shape_mode)
        return list(to_verdicts(chosen.filter(of_unit)))

    def is_volatile(self, verdict: Verdict) -> bool:
        """Whether one of its verdicts may come out another way the next time."""
        return (
            verdict.outcome in _VOLATILE
            or verdict.case_key in self._flaky
            or verdict.message.startswith(OWN_FAULT)
        )

    def _finished(self, overload: str, word: str) -> bool:
        if self.info.finished is not None:
            return overload in self._operators and overload not in self._unfinished
        return (overload, word) in self._progress.done

    @cached_property
    def _operators(self) -> frozenset[str]:
        return frozenset(completeness(self.directory).operators)

    @cached_property
    def _unfinished(self) -> frozenset[str]:
        return frozenset(completeness(self.directory).unfinished)

    @cached_property
    def _progress(self) -> progress.UnitProgress:
        return progress.read(self.directory)

    @cached_property
    def _flaky(self) -> frozenset[CaseKey]:
        return read_flaky(self.directory)

    @cached_property
    def _table(self) -> pa.Table:
        return store.read(self.directory).combine_chunks()

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Overload → its rows' places."""
        found: dict[str, list[int]] = {}
        for place, overload in enumerate(self._table["overload"].to_pylist()):
            found.setdefault(overload, []).append(place)
        return found


class Library:
    """Earlier runs, newest first.

    Args:
        directories: Of runs, or with runs below them.

    Raises:
        ResultsError: there is no such directory.

    Attributes:
        runs: Those that can be read and say what they rest on.
        notices: What could not be, in lines for a person.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.notices: list[str] = []
        found: list[EarlierRun] = []
        for directory in directories:
            if not directory.is_dir():
                raise ResultsError(
                    f"--reuse {directory}: no such directory; name a run, or a directory with runs below it"
                )
            places = list(_runs_below(directory, _DEPTH))
            if not places:
                self.notices.append(f"{directory} holds no run yet: nothing of it to reuse")
            for place in places:
                found += self._read(place)
        unique = {run.directory.resolve(): run for run in found}
        self.runs = tuple(sorted(unique.values(), key=lambda run: run.info.started, reverse=True))

    def _read(self, place: Path) -> Iterator[EarlierRun]:
        try:
            info = read_run_info(place)
        except ResultsError as error:
            self.notices.append(f"set aside: {error}")
            return
        rules = str(info.basis.get(RULES, ""))
        yield EarlierRun(place, info, rules)
        without = place / layout.WITHOUT_RULES_DIRECTORY
        if rules and layout.holds_run(without):
            yield EarlierRun(without, info, "")

    def allowing(self, now: RunInfo, place: VerdictScope) -> Iterator[EarlierRun]:
        """The runs whose verdicts of `place` hold for `now`, newest first."""
        others = (run for run in self.runs if run.info.run_id != now.run_id and SOURCE in run.info.basis)
        return (run for run in others if run.allows(now, place))


def _runs_below(directory: Path, depth: int) -> Iterator[Path]:
    if layout.holds_run(directory):
        yield directory
    elif depth:
        with os.scandir(directory) as entries:
            below = sorted(
                entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(".")
            )
        for path in below:
            yield from _runs_below(Path(path), depth - 1)
