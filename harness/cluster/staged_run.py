"""A run in progress, in a place that all nodes can access: its plan, and what is recorded so far.

PLACE/running/NAME/plan.json        `ClusterPlan`
PLACE/running/NAME/00007.5f2a1c/    the record of shard 7 from one attempt; it counts once it has a run.json

A shard may be recorded several times if a driver was killed; then any of its records is used.
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
#: A file in the directory of a shard with its process's counts: `harness.cluster.shard_process`.
ACCOUNT_FILE = "account.json"


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """The plan of a run on a cluster; it is made once and applies to every driver of the run.

    Attributes:
        arguments: The arguments of `pytest harness`, as the user gave them.
        shards: The names of each shard's units; shards are numbered from 1.
        seconds: The expected duration of each shard.
        environment: The environment that every node must have.
        variables: Environment variables of the driver that runtimes read.
        directory: The directory in which the driver was started.
    """

    arguments: tuple[str, ...]
    shards: tuple[tuple[str, ...], ...]
    seconds: tuple[float, ...]
    environment: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True, kw_only=True)
class ShardAccount:
    """The report of a shard's process in addition to its record.

    Attributes:
        cases: Number of cases.
        failures: Number of failed cases.
        problem: Why a test did not run, in one line; "" if all ran.
    """

    cases: int = 0
    failures: int = 0
    problem: str = ""


class StagedRun:
    """A run in progress.

    Args:
        place: A directory or any URL of fsspec.
        name: The name of the run, unique in that place.

    Raises:
        ResultsError: Raised by all methods if the file system refuses.
    """

    def __init__(self, place: str, name: str) -> None:
        self.place = place
        self.name = name
        self._location = Location(place)
        self._below = f"{_RUNNING}/{name}"

    def plan(self) -> ClusterPlan | None:
        """Return the plan; None if there is none yet."""
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
        """Upload the record of a shard and return its name; it counts once it is complete."""
        name = f"{shard:05d}.{secrets.token_hex(4)}"
        files = sorted(file for file in directory.rglob("*") if file.is_file())
        for file in sorted(files, key=lambda file: file.name == layout.RUN_FILE):
            target = f"{self._below}/{name}/{file.relative_to(directory).as_posix()}"
            self._location.upload(file, target)
        return name

    def recorded(self) -> dict[int, str]:
        """Return the names of recorded shards by number."""
        names: dict[int, str] = {}
        for file in self._location.files(self._below):
            name, _, rest = file.removeprefix(f"{self._below}/").partition("/")
            if rest == layout.RUN_FILE:
                names.setdefault(int(name.partition(".")[0]), name)
        return names

    def fetch(self, name: str, out: Path) -> Path:
        """Download a recorded shard to ``out/NAME``."""
        for file in self._location.files(f"{self._below}/{name}"):
            target = out / file.removeprefix(f"{self._below}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._location.download(file, target)
        return out / name

    def remove(self) -> None:
        """Remove the staged files, once the run is recorded elsewhere."""
        self._location.remove(list(self._location.files(self._below)), _RUNNING)


def planned_units(names: Iterable[str]) -> dict[str, str]:
    """Return the named units in the form of `RunInfo.planned`: overload → units."""
    words: dict[str, set[str]] = {}
    for name in names:
        overload, _, word = name.partition(" ")
        words.setdefault(overload, set()).add(word)
    return {overload: " ".join(sorted(words[overload])) for overload in sorted(words)}


def read_account(directory: Path) -> ShardAccount:
    """Return what a shard's process reported; zeros if it was killed before."""
    try:
        return parse_json(ShardAccount, (directory / ACCOUNT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ShardAccount()
