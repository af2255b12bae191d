"""A run that is under way, in a place that all nodes reach: what is to be done, and what is recorded of it.

PLACE/running/NAME/plan.json        `ClusterPlan`
PLACE/running/NAME/00007.5f2a1c/    the record of shard 7 by one attempt; it counts once it has a run.json

A shard may be there several times, from copies or from a driver that was killed: one of them is taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core import as_json, of_json
from harness.record import Location, ResultsError, layout, reason

_PLAN_FILE = "plan.json"
_RUNNING = "running"
#: In the directory of a shard: what its process said, `harness.app.cluster.shard_process`.
ACCOUNT_FILE = "account.json"


@dataclass(frozen=True, kw_only=True)
class PlannedLane:
    """The shards of a `Lane`.

    Attributes:
        arguments: Of `pytest harness`, for every shard.
        backends: As of `Lane`.
        shards: The units of each shard, by name.
        seconds: About how long each of them takes.
        environment: What every node must have on which it runs.
    """

    arguments: tuple[str, ...]
    backends: tuple[str, ...]
    shards: tuple[tuple[str, ...], ...]
    seconds: tuple[float, ...]
    environment: Mapping[str, str]

    @property
    def planned(self) -> tuple[dict[str, str], ...]:
        """`RunInfo.planned` of its shards."""
        return tuple(planned_units(units) for units in self.shards)


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What a run on a cluster is to do. It is made once and holds for every driver of the run.

    Shards are numbered from 1, those of the first lane before those of the second.

    Attributes:
        arguments: Of `pytest harness`, as the user gave them.
        examples: Cases of each unit.
        variables: Environment variables of the driver that runtimes read.
        directory: Where the driver was started.
    """

    arguments: tuple[str, ...]
    lanes: tuple[PlannedLane, ...]
    examples: int
    variables: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""

    @property
    def count(self) -> int:
        """How many shards it has."""
        return sum(len(lane.shards) for lane in self.lanes)

    def numbers(self, lane: int) -> range:
        """The numbers of a lane's shards."""
        before = sum(len(other.shards) for other in self.lanes[:lane])
        return range(before + 1, before + 1 + len(self.lanes[lane].shards))

    def lane_of(self, shard: int) -> int:
        """The place of the lane that a shard is of."""
        return next(lane for lane in range(len(self.lanes)) if shard in self.numbers(lane))

    def time_name(self, lane: int, unit: str) -> str:
        """Under which the time of a unit is kept: it takes other times with other backends."""
        return unit if len(self.lanes) == 1 else f"{unit} {','.join(self.lanes[lane].backends)}"


@dataclass(frozen=True, kw_only=True)
class ShardAccount:
    """What a shard's process has to say beside its record.

    Attributes:
        seconds: By unit.
        problem: Why an item could not be carried out, in one line; "" where all could.
    """

    cases: int = 0
    failures: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


class StagedRun:
    """A run under way.

    Args:
        place: A directory or any URL of fsspec.
        name: Of the run, unique there.

    Raises:
        ResultsError: from all methods, where the file system refuses.
    """

    def __init__(self, place: str, name: str) -> None:
        self.place = place
        self.name = name
        self._location = Location(place)
        self._below = f"{_RUNNING}/{name}"

    def plan(self) -> ClusterPlan | None:
        """What was planned; None before it is."""
        name = f"{self._below}/{_PLAN_FILE}"
        if name not in self._location.files(self._below):
            return None
        try:
            return of_json(ClusterPlan, self._location.read(name).decode())
        except ValueError as error:
            raise ResultsError(f"{self._location.named(name)} is damaged: {reason(error)}") from None

    def begin(self, plan: ClusterPlan) -> None:
        """Write the plan."""
        self._location.write(as_json(plan), f"{self._below}/{_PLAN_FILE}")

    def publish(self, directory: Path, shard: int) -> str:
        """Put the record of a shard here; its name here. It counts once all of it is there."""
        name = f"{shard:05d}.{secrets.token_hex(4)}"
        files = sorted(file for file in directory.rglob("*") if file.is_file())
        for file in sorted(files, key=lambda file: file.name == layout.RUN_FILE):
            target = f"{self._below}/{name}/{file.relative_to(directory).as_posix()}"
            self._location.upload(file, target)
        return name

    def recorded(self) -> dict[int, str]:
        """The names of recorded shards by number."""
        found: dict[int, str] = {}
        for file in self._location.files(self._below):
            name, _, rest = file.removeprefix(f"{self._below}/").partition("/")
            if rest == layout.RUN_FILE:
                found.setdefault(int(name.partition(".")[0]), name)
        return found

    def fetch(self, name: str, out: Path) -> Path:
        """A copy of a recorded shard, in the directory ``out/NAME``."""
        for file in self._location.files(f"{self._below}/{name}"):
            target = out / file.removeprefix(f"{self._below}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._location.download(file, target)
        return out / name

    def remove(self) -> None:
        """Remove all of it: its record is elsewhere now."""
        self._location.remove(list(self._location.files(self._below)), _RUNNING)


def planned_units(names: Iterable[str]) -> dict[str, str]:
    """Units, by name, as `RunInfo.planned` has them: overload → words."""
    words: dict[str, set[str]] = {}
    for name in names:
        overload, _, word = name.partition(" ")
        words.setdefault(overload, set()).add(word)
    return {overload: " ".join(sorted(words[overload])) for overload in sorted(words)}


def read_account(directory: Path) -> ShardAccount:
    """What the process of a shard said; nothing where it was killed."""
    try:
        return of_json(ShardAccount, (directory / ACCOUNT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ShardAccount()
