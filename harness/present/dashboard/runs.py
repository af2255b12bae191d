"""The runs of a site, oldest first: those shown, the first one shown, and the one each is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.compare.verdict import CaseKey
from harness.core.text import count
from harness.gate.run_request import RunRequest, last_of_kind, requested, shown_first
from harness.record.json_lines import read_flaky
from harness.record.layout import ResultsError
from harness.record.progress import Completeness, completeness
from harness.record.run_info import RunInfo, ShardState, read_run_info

#: Parts of a request in which two runs may differ while their shares are of the same cases.
_NOT_OF_CASES = frozenset({"seed", "sources", "converters", "backends"})


def first_shown(requests: Sequence[RunRequest], empty: Sequence[bool]) -> int:
    """Return the number of the run that is shown by default; −1 without a run.

    Args:
        requests: The requests of all runs, oldest first.
        empty: For each run, whether it has no verdict: it shows nothing, so that any other run takes precedence.
    """
    some = [one for one, nothing in zip(requests, empty, strict=True) if not nothing] or requests
    found = shown_first(some)
    return -1 if found is None else _place(requests, found)


def earlier_run(requests: Sequence[RunRequest], number: int) -> int | None:
    """Return the run with which a run is compared: the newest earlier one of its kind.

    Otherwise it is the newest earlier run of every operator with one of its converters and backends, or else the newest
    earlier one with such; if any.
    """
    mine = requests[number]
    found = last_of_kind(mine, requests) or shown_first(filter(mine.shares_route, requests[:number]))
    return None if found is None else _place(requests, found)


def runs_of_like_cases(requests: Sequence[RunRequest], number: int) -> list[int]:
    """Return the runs, this one included, whose shares are of the same cases as a run's, except for the seed."""
    mine = requests[number]
    return [n for n, other in enumerate(requests) if not mine.differences(other).keys() - _NOT_OF_CASES]


def differences(requests: Sequence[RunRequest]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return ``A/B``, the numbers of an earlier and a later run → the differences between their requests."""
    pairs = ((a, b) for b in range(len(requests)) for a in range(b))
    found = ((f"{a}/{b}", requests[a].differences(requests[b])) for a, b in pairs)
    return {pair: theirs for pair, theirs in found if theirs}


def asked_for(request: RunRequest, other: RunRequest, cells: pa.Table) -> npt.NDArray[np.bool_]:
    """Return the mask of another run's cases that a run also requested; all false if the two drew other ones.

    Args:
        cells: The columns that `RunRequest.asks` reads, a row for each case.
    """
    if request.differences(other).keys() & {*request.budget, *other.budget}:
        return np.zeros(cells.num_rows, dtype=bool)
    return request.asks(cells)


def _place(requests: Sequence[RunRequest], wanted: RunRequest) -> int:
    return next(number for number, one in enumerate(requests) if one is wanted)


#: States of a run: every case that was to be drawn is there; some are lost, or still to come.
COMPLETE, PARTIAL = "complete", "partial"


@dataclass(frozen=True, kw_only=True)
class SiteRun:
    """One run that is shown.

    Attributes:
        there: Its completeness.
        request: Its request.
        flaky: The cases that are known to end in two ways.
    """

    directory: Path
    info: RunInfo
    there: Completeness
    request: RunRequest
    flaky: frozenset[CaseKey] = field(default_factory=frozenset)

    @property
    def state(self) -> str:
        """`COMPLETE` or `PARTIAL`."""
        whole = all(part.state is ShardState.COMPLETE and not part.unfinished for part in self.there.parts)
        return COMPLETE if whole else PARTIAL

    @property
    def unfinished(self) -> frozenset[str]:
        """Operators of which verdicts are missing."""
        return frozenset(self.there.unfinished)

    @property
    def says_what_is_missing(self) -> bool:
        """Whether it names all operators of which verdicts are missing."""
        silent = any(s.state is ShardState.MISSING and not s.unfinished for s in self.info.shards)
        return not silent and (self.info.finished is not None or bool(self.there.operators))

    @property
    def notes(self) -> list[str]:
        """Return warnings about missing parts, a sentence each."""
        notes = [
            f"Shard {shard.index} of {shard.count} is {_SHARD_WORDS[shard.state]}: "
            f"{count(len(shard.unfinished), 'operator')} of it "
            f"{'is' if len(shard.unfinished) == 1 else 'are'} shown as missing."
            for shard in self.info.shards
            if shard.state is not ShardState.COMPLETE or shard.unfinished
        ]
        if not self.info.finished:
            notes.append("The run has not finished: it was killed or is still running.")
        if not self.info.shards and self.unfinished:
            planned = count(len(self.there.operators), "planned operator")
            notes.append(f"{len(self.unfinished):,} of {planned} lack results and are shown as missing.")
        return notes


_SHARD_WORDS = {
    ShardState.MISSING: "lost",
    ShardState.PARTIAL: "unfinished",
    ShardState.COMPLETE: "not whole",
}


@dataclass(frozen=True)
class SetAside:
    """A directory that was given and is not shown: the last part of its name, and why in a line."""

    name: str
    message: str


@dataclass
class Gathered:
    """The runs in the given directories.

    Attributes:
        runs: The runs to show, oldest first, each once.
        aside: The directories that are not shown.
        copies: Further directories of the same runs, each with its entry for `aside`.
    """

    runs: list[SiteRun] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    copies: list[tuple[SiteRun, SetAside]] = field(default_factory=list)

    def set_aside(self, run: SiteRun, error: Exception) -> SiteRun | None:
        """Show a run no longer, because reading on has shown that it is damaged.

        Returns:
            The copy that takes its place, if there is one.
        """
        copy = next((found for found in self.copies if found[0].info.run_id == run.info.run_id), None)
        if copy is not None:
            self.copies.remove(copy)
            self.aside.remove(copy[1])
        place, spares = self.runs.index(run), [] if copy is None else [copy[0]]
        self.runs[place : place + 1] = spares
        self.aside.append(SetAside(run.directory.name, _words(error, run.directory)))
        return next(iter(spares), None)


def gather(directories: Sequence[Path]) -> Gathered:
    """Read the requests and states of the runs in `directories`, without their rows."""
    found = Gathered()
    ids: dict[str, Path] = {}
    for directory in directories:
        try:
            info = read_run_info(directory)
            run = SiteRun(
                directory=directory,
                info=info,
                there=completeness(directory),
                request=requested(directory, info),
                flaky=read_flaky(directory),
            )
        except ResultsError as error:
            found.aside.append(SetAside(directory.name, _words(error, directory)))
            continue
        if run.info.run_id in ids:
            other = ids[run.info.run_id].name
            found.aside.append(SetAside(directory.name, f"it is the same run as {other}"))
            found.copies.append((run, found.aside[-1]))
            continue
        ids[run.info.run_id] = directory
        found.runs.append(run)
    found.runs.sort(key=lambda run: (run.info.started, run.info.run_id))
    return found


def _words(error: Exception, directory: Path) -> str:
    """Return an error's message without the machine's path to the run."""
    text = str(error).strip().splitlines()
    parent = f"{directory.parent}/" if str(directory.parent) != "." else ""
    return (text[0] if text else type(error).__name__).replace(parent, "") if parent else (text or [""])[0]
