"""One run from runs of the same cases in different backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.record.layout import ResultsError
from harness.record.merging import combine, differing
from harness.record.run_info import MergedPart, RunInfo, ShardState, read_run_info

_BACKEND = "backend"


def join_backends(runs: Sequence[Path], out: Path, *, lost: Sequence[Mapping[str, str]] = ()) -> RunInfo:
    """Write one run to `out` that has the rows of all of `runs`.

    Args:
        runs: Merged ones, of the same seed and options but for their backends.
        out: Holds no run.
        lost: `RunInfo.planned` of shards of further runs, of which nothing is there.

    Raises:
        ResultsError: they do not belong together, or `out` cannot be written.
    """
    infos = [read_run_info(run) for run in runs]
    for run, info in zip(runs, infos, strict=True):
        options = ({**one.options, "seed": one.seed, _BACKEND: None} for one in (infos[0], info))
        for name, a, b in differing(*options):
            raise ResultsError(f"{runs[0]} and {run} are not of one run: --{name} {a} and {b}")
    parts = [part for info in infos for part in info.shards]
    for planned in lost:
        names = tuple(planned)
        parts.append(MergedPart(index=0, count=0, state=ShardState.MISSING, operators=names, unfinished=names))
    numbered = [replace(part, index=n, count=len(parts)) for n, part in enumerate(parts, start=1)]
    first = replace(
        infos[0],
        options={**infos[0].options, _BACKEND: [name for info in infos for name in _backends(info)]},
        planned=(*(planned for info in infos for planned in info.planned), *lost),
    )
    return combine(first, infos, runs, numbered, out)


def _backends(info: RunInfo) -> list[str]:
    given = info.options.get(_BACKEND)
    return [str(name) for name in given] if isinstance(given, list) else []
