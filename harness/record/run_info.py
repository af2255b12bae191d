"""Facts about a run: the versions of everything that took part, the options, the seed, the host."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.documents import parse_json, to_json
from harness.record import layout
from harness.record.layout import ResultsError, reason

if TYPE_CHECKING:
    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
else:
    JSON = Any

#: Distributions whose versions can change a verdict on any runtime; installed ones are recorded.
DISTRIBUTIONS = (
    "torch",
    "numpy",
    "ml-dtypes",
    "onnx",
    "onnxscript",
    "onnx-ir",
    "hypothesis",
    "pyarrow",
    "pytest",
    "pytest-xdist",
)

#: Keys of `RunInfo.basis`: the harness's source, and the user's rules.
SOURCE, RULES = "harness source", "rules"
#: Key of `RunInfo.basis`: the kernels that computed; see `harness.plan.basis`.
KERNELS = "kernels"


#: Key of `RunInfo.options`: the rule files, as paths relative to the run's directory.
OPTION = "rules"


class ShardState(StrEnum):
    """The completeness of a shard."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A shard of a run, or the whole run if it has no shards.

    Attributes:
        index: Number of the shard, from 1 to `count`.
        count: Number of shards.
        state: How complete it is.
        operators: The planned operators.
        unfinished: The operators whose verdicts are not all recorded.
    """

    index: int
    count: int
    state: ShardState
    operators: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MergedPart(Part):
    """A shard of a merged run; unknown facts about a lost shard are None."""

    run_id: str | None = None
    started: str | None = None
    finished: str | None = None
    exit_status: int | None = None
    host: Mapping[str, JSON] | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The contents of ``RESULTS/run.json``.

    Attributes:
        run_id: Unique; sorts by time.
        started: ISO 8601, UTC.
        seed: The seed of the generator.
        finished: ISO 8601, UTC; None while the run is in progress or if it was killed.
        versions: Name → version of everything that took part, ``python`` first.
        options: The options of the run.
        host: Operating system, processor, number of CPUs; nothing that identifies a person or a place.
        exit_status: pytest's exit status.
        shard: ``index`` (from 1) and ``count``; None for a whole run.
        planned: Overload → units (`harness.record.progress.Planned`), for every shard in order, or once for a whole
            run. Every shard records those of all.
        operators: Operators that were not deselected entirely, once the run has finished.
        unfinished: The operators whose verdicts are not all recorded.
        basis: Digests of what verdicts depend on in addition to versions: `harness.plan.basis`.
        notes: Notes for people on how the run was made, one line each.
        upkeep: What the run says of the harness itself (`harness.causes.upkeep`); empty for nothing.
        shards: The shards of a merged run; empty for others.
    """

    run_id: str
    started: str
    seed: int
    finished: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, JSON] = field(default_factory=dict)
    host: Mapping[str, JSON] = field(default_factory=dict)
    exit_status: int | None = None
    shard: Mapping[str, int] | None = None
    planned: tuple[Mapping[str, str], ...] = ()
    operators: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    basis: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    upkeep: Mapping[str, JSON] = field(default_factory=dict)
    shards: tuple[MergedPart, ...] = ()

    @classmethod
    def begin(
        cls,
        *,
        seed: int,
        options: Mapping[str, JSON],
        versions: Mapping[str, str] | None = None,
        runtimes: Iterable[str] = (),
        shard: Mapping[str, int] | None = None,
        planned: Sequence[Mapping[str, str]] = (),
        basis: Mapping[str, str] | None = None,
    ) -> RunInfo:
        """Return the info of a run that starts now on this machine.

        Args:
            seed: The seed of the generator.
            options: The options of the run.
            versions: Versions of converters, backends and others that are not installed packages.
            runtimes: Further packages whose versions are recorded if they are installed.
            shard: The shard, as in `RunInfo`.
            planned: The planned units, as in `RunInfo`.
            basis: The basis, as in `RunInfo`.
        """
        now = datetime.now(UTC)
        return cls(
            run_id=f"{now:%Y%m%dT%H%M%S}-{now.microsecond // 1000:03d}-{secrets.token_hex(3)}",
            started=now.isoformat(timespec="milliseconds"),
            seed=seed,
            versions={**installed_versions(runtimes), **(versions or {})},
            options=dict(options),
            host={
                "system": platform.system(),
                "release": platform.release(),
                "machine": platform.machine(),
                "python_implementation": platform.python_implementation(),
                "cpu_count": os.cpu_count(),
            },
            shard=shard,
            planned=tuple(planned),
            basis=basis or {},
        )

    @property
    def json(self) -> str:
        """The text of the file."""
        return to_json(self, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Return the info that `json` gave; unknown fields, as of a later version, are ignored.

        Raises:
            ValueError: The text is something else.
        """
        return parse_json(cls, text)


def read_run_info(directory: Path) -> RunInfo:
    """Return the info of the run in `directory`.

    Raises:
        ResultsError: The directory has no run, or its file is damaged.
    """
    path = directory / layout.RUN_FILE
    try:
        return RunInfo.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(f"{directory} holds no run: it has no {layout.RUN_FILE}") from None
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path} is damaged ({reason(error)}); restore it or delete {directory} and run again"
        ) from None


def write_run_info(directory: Path, info: RunInfo) -> None:
    """Write the info of a run, atomically replacing any earlier one."""
    with layout.replacing(directory / layout.RUN_FILE) as temporary:
        temporary.write_text(info.json, encoding="utf-8")


def newest(parent: Path) -> Path | None:
    """Return the run in `parent` that started last; None if there is none.

    A run whose info is damaged counts as the oldest.
    """
    runs = [child for child in parent.iterdir() if layout.holds_run(child)] if parent.is_dir() else []

    def began(directory: Path) -> str:
        try:
            return read_run_info(directory).started
        except ResultsError:
            return ""

    return max(runs, key=began, default=None)


def recorded_paths(files: Sequence[Path], run: Path) -> list[str]:
    """Return the paths under which the run in directory `run` records rule files."""
    return [os.path.relpath(file, run) for file in files]


def rule_files(run: Path, info: RunInfo) -> tuple[Path, ...]:
    """Return the rule files of the run in directory `run` that still exist."""
    files = info.options.get(OPTION)
    # As people type it: they are recorded relative to the run.
    named = [Path(os.path.normpath(run / str(file))) for file in files] if isinstance(files, list) else []
    return tuple(file for file in named if file.is_file())


def installed_versions(runtimes: Iterable[str] = ()) -> dict[str, str]:
    """Return the installed versions of Python, `DISTRIBUTIONS` and `runtimes`, without importing them."""
    versions = {"python": platform.python_version()}
    for name in (*DISTRIBUTIONS, *runtimes):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
