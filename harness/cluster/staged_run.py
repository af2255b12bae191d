"""A run that is under way, in a place that all nodes reach: what is to be done, and what is recorded of it.

PLACE/running/NAME/plan.json        `ClusterPlan`
PLACE/running/NAME/00007.5f2a1c/    the record of shard 7 by one attempt; it counts once it has a run.json

A shard may be there several times, from a driver that was killed: one of them is taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.documents import parse_json, to_json
from harness.record import layout
from harness.record.archive.place import Location
from harness.record.layout import ResultsError, reason

_PLAN_FILE = "plan.json"
_RUNNING = "running"
#: In the directory of a shard: what its process reported, `harness.cluster.shard_process`.
ACCOUNT_FILE = "account.json"


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What a run on a cluster is to do. It is made once and holds for every driver of the run.

    Attributes:
        arguments: Of `pytest harness`, as the user gave them.
        shards: The units of each shard, by name; shards are numbered from 1.
        seconds: About how long each of them takes.
        environment: What every node must have on which it runs.
        variables: Environment variables of the driver that runtimes read.
        directory: Where the driver was started.
    """

    arguments: tuple[str, ...]
    shards: tuple[tuple[str, ...], ...]
    seconds: tuple[float, ...]
    environment: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True, kw_only=True)
class ShardAccount:
    """What a shard's process reports in addition to its record.

    Attributes:
        problem: Why an item did not run, in one line; "" if all did.
    """

    cases: int = 0
    failures: int = 0
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
            return parse_json(ClusterPlan, self._location.read(name).decode())
        except ValueError as error:
            raise ResultsError(f"{self._location.named(name)} is damaged: {reason(error)}") from None

    def begin(self, plan: ClusterPlan) -> None:
        """Write the plan."""
        self._location.write(to_json(plan), f"{self._below}/{_PLAN_FILE}")

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
        return parse_json(ShardAccount, (directory / ACCOUNT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ShardAccount()
