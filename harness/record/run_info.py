"""What a run was: the versions of everything that took part, the options, the seed, the host."""

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

#: Distributions whose versions can change a verdict, whatever the runtime; those that are installed are
#: recorded.
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

#: Names in `RunInfo.basis`: of the harness's own source, of the user's rules.
SOURCE, RULES = "harness source", "rules"
#: In the basis of a run: which kernels computed; see `harness.plan.basis`.
KERNELS = "kernels"


#: In `RunInfo.options`, the files of rules, as paths from the run's directory.
OPTION = "rules"


class ShardState(StrEnum):
    """How much of a shard there is."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One shard of a run, or the whole of a run that has no shards.

    Attributes:
        index: From 1, of `count`.
        operators: The planned ones.
        unfinished: Those whose verdicts are not all there.
    """

    index: int
    count: int
    state: ShardState
    operators: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MergedPart(Part):
    """A shard as a merged run remembers it; what is not known of a lost one is None."""

    run_id: str | None = None
    started: str | None = None
    finished: str | None = None
    exit_status: int | None = None
    host: Mapping[str, JSON] | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """``RESULTS/run.json``.

    Attributes:
        run_id: Sorts by time; unique.
        started: ISO 8601, UTC.
        finished: The same; None while the run goes on, and for good where it was killed.
        versions: Name → version of what takes part, ``python`` first.
        host: Operating system, processor, number of CPUs; nothing that names a person or a place.
        shard: ``index`` (from 1) and ``count`` of a part of a run; None for a whole one.
        planned: Per shard of the run, in their order (one for a whole run), overload → its units:
            `harness.record.progress.Planned`. A shard knows those of all.
        operators: Operators of which something was to be run, once the run has finished.
        unfinished: Those of them whose verdicts are not all there.
        basis: What verdicts rest on beside versions: `harness.plan.basis`.
        notes: What a person should know of how the run was made, a line each.
        shards: Of a run that was merged; empty for others.
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
        """A run that starts now, on this machine, with what is installed here.

        Args:
            versions: Of converters and backends, and of whatever else is not an installed package.
            runtimes: Packages whose versions are recorded, too, where they are installed.
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
        """As the file holds it."""
        return to_json(self, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Read what `json` gave; what a later version added is ignored.

        Raises:
            ValueError: it is something else.
        """
        return parse_json(cls, text)


def read_run_info(directory: Path) -> RunInfo:
    """What the run in `directory` was.

    Raises:
        ResultsError: there is none, or its file is damaged.
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
    """Put `info` in place of what was there, at once."""
    with layout.replacing(directory / layout.RUN_FILE) as temporary:
        temporary.write_text(info.json, encoding="utf-8")


def newest(parent: Path) -> Path | None:
    """The run among the directories in `parent` that began last; None without any.

    A run whose file is damaged counts as older than every other.
    """
    runs = [child for child in parent.iterdir() if layout.holds_run(child)] if parent.is_dir() else []

    def began(directory: Path) -> str:
        try:
            return read_run_info(directory).started
        except ResultsError:
            return ""

    return max(runs, key=began, default=None)


def recorded(files: Sequence[Path], run: Path) -> list[str]:
    """How the files of rules of the run in directory `run` are recorded."""
    return [os.path.relpath(file, run) for file in files]


def rule_files(run: Path, info: RunInfo) -> tuple[Path, ...]:
    """The files of rules that the run in directory `run` had, if they are still there."""
    files = info.options.get(OPTION)
    named = [run / str(file) for file in files] if isinstance(files, list) else []
    return tuple(file for file in named if file.is_file())


def installed_versions(runtimes: Iterable[str] = ()) -> dict[str, str]:
    """Versions of Python and of those of `DISTRIBUTIONS` and `runtimes` that are installed; imports none."""
    versions = {"python": platform.python_version()}
    for name in (*DISTRIBUTIONS, *runtimes):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
