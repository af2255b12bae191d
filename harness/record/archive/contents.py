"""What a dataset has: its runs, those that nobody can read or that were set aside; and what it takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.record import layout, parquet
from harness.record.json_lines import read_flaky, read_minimal
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo, read_run_info


@dataclass(frozen=True)
class ArchivedRun:
    """A run of a dataset.

    Attributes:
        info: Its ``run.json``, which names what it lacks verdicts of, such as the operators of a lost shard.
    """

    info: RunInfo
    rows: int
    files: dict[str, int]

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(self.files.values())


@dataclass(frozen=True)
class DamagedRun:
    """A run that a dataset has and nobody can read; why, in words."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class Aside:
    """A run that was set aside.

    Attributes:
        since: When it was set aside; None where that is not known.
    """

    name: str
    reason: str
    since: datetime | None


@dataclass(frozen=True)
class ArchiveContents:
    """What a dataset has: sound runs, oldest first; damaged ones; those that were set aside."""

    runs: tuple[ArchivedRun, ...]
    damaged: tuple[DamagedRun, ...]
    aside: tuple[Aside, ...]

    def chosen(self, names: Sequence[str] = (), last: int | None = None) -> list[ArchivedRun]:
        """Runs by id, or by an unambiguous beginning of it; the newest `last`; or all. Oldest first.

        Raises:
            ResultsError: a name is none's or several runs'.
        """
        found = [self._named(name) for name in names] if names else list(self.runs)
        found.sort(key=age)
        return found if last is None else found[-last:]

    def kept(self, last: int, months: int) -> set[str]:
        """Ids of the newest `last` runs and of the newest one of each of the last `months` that have a run.

        The newest run of all is always among them: without it there is nothing to compare the next one with.
        A run whose verdicts are not all there stands for a month only where no other does.
        """
        newest_first = [run.info for run in reversed(self.runs)]
        best: dict[str, str] = {}
        for info in sorted(newest_first, key=lambda info: bool(info.unfinished)):
            best.setdefault(f"{datetime.fromisoformat(info.started).astimezone(UTC):%Y-%m}", info.run_id)
        monthly = [best[month] for month in sorted(best, reverse=True)[:months]]
        return {*(info.run_id for info in newest_first[: max(last, 1)]), *monthly}

    def _named(self, name: str) -> ArchivedRun:
        exact = [run for run in self.runs if run.info.run_id == name]
        found = exact or [run for run in self.runs if name and run.info.run_id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ResultsError(f"{name!r} begins {len(found)} runs: {', '.join(run.info.run_id for run in found[:3])}")
        for bad in self.damaged:
            if bad.run_id == name:
                raise ResultsError(f"run {name} is damaged ({bad.reason})")
        newest = ", ".join(run.info.run_id for run in self.runs[-3:])
        raise ResultsError(f"the dataset has no run {name!r}" + (f"; newest: {newest}" if newest else ""))


def age(entry: ArchivedRun) -> tuple[str, str]:
    """Puts runs in order, oldest first."""
    return entry.info.started, entry.info.run_id


def complaint(run: Path) -> str | None:
    """Why the run in a local directory is to be set aside; None for a sound one. Reads all of it."""
    try:
        info = read_run_info(run)
        if not re.fullmatch(r"[\w.-]+", info.run_id):
            return f"its run id {info.run_id!r} cannot name a directory"
        if not is_time(info.started):
            return f"its `started` is no time: {info.started}"
        if info.shard is not None:
            part = f"{info.shard.get('index')}/{info.shard.get('count')}"
            return f"it is shard {part} of a run: put them together with `conformance merge`"
        verdicts = run / layout.VERDICTS_FILE
        if info.finished is None or not verdicts.exists():
            return "it did not finish: it was killed or is still running"
        # Reading every row compares every checksum.
        if not sum(table.num_rows for table in parquet.tables([verdicts])):
            return "it holds no case"
        read_flaky(run)
        read_minimal(run)
    except ResultsError as error:
        return str(error)
    return None


def is_time(text: str) -> bool:
    """Whether runs can be put in order by it: ISO 8601 with a time zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
