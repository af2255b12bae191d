"""The runs that a site shows, oldest first, and those that cannot be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.compare import CaseKey
from harness.core import count
from harness.record import ResultsError, RunInfo, layout, read_flaky, read_run_info, store

#: States of a run: every case that was to be drawn is there; some are lost, or still to come.
COMPLETE, PARTIAL = "complete", "partial"


@dataclass(frozen=True, kw_only=True)
class MergedShard:
    """A part of a merged run that another machine did.

    Attributes:
        index: From 1.
        count: How many there are.
        state: ``complete``, ``partial`` or ``missing``.
        unfinished: Operators whose cases are not all there.
    """

    index: int
    count: int
    state: str
    unfinished: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SiteRun:
    """One run that is shown.

    Attributes:
        directory: Where it is.
        info: Its ``run.json``.
        shards: Of a merged run; empty for one that was never divided.
        flaky: Cases that are known to end in two ways.
    """

    directory: Path
    info: RunInfo
    shards: tuple[MergedShard, ...] = ()
    flaky: frozenset[CaseKey] = field(default_factory=frozenset)

    @property
    def state(self) -> str:
        """`COMPLETE` or `PARTIAL`."""
        whole = all(shard.state == COMPLETE and not shard.unfinished for shard in self.shards)
        return COMPLETE if whole and self.info.finished else PARTIAL

    @property
    def unfinished(self) -> frozenset[str]:
        """Operators that a shard names as not finished."""
        return frozenset(name for shard in self.shards for name in shard.unfinished)

    @property
    def takes_all(self) -> bool:
        """Whether it was to run every operator: what it lacks was lost if it is partial."""
        return not self.info.options.get("op")

    @property
    def notes(self) -> list[str]:
        """What a reader must know of what is missing, a sentence each."""
        said = [
            f"Shard {shard.index} of {shard.count} is {_SHARD_WORDS.get(shard.state, shard.state)}: "
            f"{count(len(shard.unfinished), 'operator')} of it "
            f"{'is' if len(shard.unfinished) == 1 else 'are'} shown as missing."
            for shard in self.shards
            if shard.state != COMPLETE or shard.unfinished
        ]
        if not self.info.finished:
            said.append("The run has not finished: it was killed, or goes on.")
        return said


_SHARD_WORDS = {"missing": "lost", "partial": "unfinished", COMPLETE: "not whole"}


@dataclass(frozen=True)
class SetAside:
    """A directory that was given and is not shown.

    Attributes:
        name: Its last part.
        message: Why, in a line.
    """

    name: str
    message: str


@dataclass
class Gathered:
    """What was found in the directories that were given.

    Attributes:
        runs: Oldest first.
        aside: In the order in which they were given.
    """

    runs: list[SiteRun]
    aside: list[SetAside]

    def set_aside(self, run: SiteRun, error: Exception) -> None:
        """Show a run no longer: reading on has shown that it is damaged."""
        self.runs = [other for other in self.runs if other is not run]
        self.aside.append(SetAside(run.directory.name, _words(error, run.directory)))


def gather(directories: Sequence[Path]) -> Gathered:
    """Read what the runs in `directories` were; no rows yet."""
    found = Gathered([], [])
    ids: dict[str, Path] = {}
    for directory in directories:
        try:
            run = _read(directory)
        except (ResultsError, ValueError, TypeError) as error:
            found.aside.append(SetAside(directory.name, _words(error, directory)))
            continue
        if run.info.run_id in ids:
            other = ids[run.info.run_id].name
            found.aside.append(SetAside(directory.name, f"it is the same run as {other}"))
            continue
        ids[run.info.run_id] = directory
        found.runs.append(run)
    found.runs.sort(key=lambda run: (run.info.started, run.info.run_id))
    return found


def _read(directory: Path) -> SiteRun:
    info = read_run_info(directory)
    raw = json.loads((directory / layout.RUN_FILE).read_text(encoding="utf-8"))
    return SiteRun(directory=directory, info=info, shards=_shards(raw), flaky=read_flaky(directory))


def _shards(raw: Mapping[str, Any]) -> tuple[MergedShard, ...]:
    """What a merge noted; what it does not say in the way that is expected is taken for unfinished."""
    given = raw.get("shards")
    noted = given if isinstance(given, list) else []
    found = []
    for number, one in enumerate(noted, start=1):
        data = one if isinstance(one, dict) else {}
        operators = data.get("unfinished")
        names = tuple(str(name) for name in operators) if isinstance(operators, list) else ()
        index, total = data.get("index"), data.get("count")
        found.append(
            MergedShard(
                index=index if isinstance(index, int) else number,
                count=total if isinstance(total, int) else len(noted),
                state=str(data.get("state") or "missing"),
                unfinished=names,
            )
        )
    return tuple(found)


def _words(error: Exception, directory: Path) -> str:
    """An error's message without the machine's path to the run."""
    text = str(error).strip().splitlines()
    parent = f"{directory.parent}/" if str(directory.parent) != "." else ""
    return (text[0] if text else type(error).__name__).replace(parent, "") if parent else (text or [""])[0]


def rows(run: SiteRun, columns: Sequence[str], where: Any = None) -> Any:
    """Some columns of a run's rows.

    Raises:
        ResultsError: a file of it is damaged.
    """
    return store.read(run.directory, columns, where)
