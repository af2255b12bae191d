"""Merge the shards of a run into one run, and name what is missing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.record import layout, parquet, store
from harness.record.json_lines import FLAKY_FILE, MINIMAL_FILE, read_flaky, write_flaky
from harness.record.layout import ResultsError, reason
from harness.record.progress import completeness
from harness.record.run_info import (
    OPTION,
    RULES,
    SOURCE,
    MergedPart,
    Part,
    RunInfo,
    ShardState,
    read_run_info,
    write_run_info,
)

#: A folder of the merged run for other files of each shard's directory, by shard number.
SHARDS_DIRECTORY = "shards"

_RUN_FILES = {
    layout.RUN_FILE,
    layout.VERDICTS_FILE,
    layout.PARTS_DIRECTORY,
    layout.WITHOUT_RULES_DIRECTORY,
    FLAKY_FILE,
    MINIMAL_FILE,
}


@dataclass(frozen=True)
class ShardRun:
    """A shard's results."""

    directory: Path
    info: RunInfo
    part: Part

    @property
    def name(self) -> str:
        """The shard's name in messages."""
        return f"shard {self.part.index}/{self.part.count} ({self.directory})"


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    Attributes:
        info: The merged run.
        set_aside: One line for each directory that was skipped, with the reason.
    """

    info: RunInfo
    set_aside: tuple[str, ...]


def merge(directories: Sequence[Path], out: Path, *, different_versions: bool = False) -> Merged:
    """Merge the shards in `directories` into a run in `out`.

    A directory without a run, or with a damaged one, is skipped, and its shard counts as missing.

    Args:
        directories: The shards' directories.
        out: The directory of the merged run; it may exist if it contains no run.
        different_versions: Merge shards that ran with different versions.

    Raises:
        ResultsError: No shard exists, they do not belong together, one is given twice, or `out` contains a run or
            cannot be written.
    """
    shards, set_aside = _read_shards(directories)
    if not shards:
        raise ResultsError(f"nothing to merge: {'; '.join(set_aside) or 'no shard is given'}")
    _check(shards, different_versions)
    if layout.holds_run(out):
        raise ResultsError(f"{out} already holds a run; nothing was overwritten: give another --out, or delete it")
    first, directories = shards[0].info, [shard.directory for shard in shards]
    info = combine(first, [shard.info for shard in shards], directories, _parts(shards), out)
    _copy_others(shards, out)
    return Merged(info, tuple(set_aside))


def combine(
    first: RunInfo,
    infos: Sequence[RunInfo],
    directories: Sequence[Path],
    parts: Sequence[MergedPart],
    out: Path,
) -> RunInfo:
    """Write the rows of runs that belong together to `out`, as one run.

    Args:
        first: Provides what is the same for all of them.
        infos: The runs in `directories`.
        directories: The runs' directories.
        parts: All shards of the run, including missing ones.
        out: A directory without a run; it is created if missing.

    Raises:
        ResultsError: A file cannot be read or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {out}: {reason(error)}") from None
    info = _combined(first, infos, parts)
    _write(directories, out, info)
    without = [directory / layout.WITHOUT_RULES_DIRECTORY for directory in directories]
    if any(map(layout.holds_run, without)):
        (out / layout.WITHOUT_RULES_DIRECTORY).mkdir()
        _write(without, out / layout.WITHOUT_RULES_DIRECTORY, info)
    return info


def _read_shards(directories: Sequence[Path]) -> tuple[list[ShardRun], list[str]]:
    shards: dict[tuple[int, int], ShardRun] = {}
    set_aside: list[str] = []
    for directory in directories:
        try:
            info = read_run_info(directory)
            part = completeness(directory).parts[0]
            for _ in parquet.tables(store.files(directory)):
                pass
            read_flaky(directory)
        except ResultsError as error:
            set_aside.append(str(error))
            continue
        if info.shard is None:
            whole = "is a whole run, not a shard (pytest harness --shard I/N)"
            raise ResultsError(f"{directory} {'was merged already' if info.shards else whole}: leave it out")
        shard = ShardRun(directory, info, part)
        first = shards.setdefault((part.index, part.count), shard)
        if first is not shard:
            raise ResultsError(
                f"shard {part.index}/{part.count} is given twice, in {first.directory} and in {directory}: "
                "leave one out"
            )
    return [shards[place] for place in sorted(shards)], set_aside


def _check(shards: Sequence[ShardRun], different_versions: bool) -> None:
    """Raise a `ResultsError` if two shards belong to different runs; the message says how they differ."""
    first = shards[0]
    for other in shards[1:]:
        pair = f"{first.name} and {other.name} are not of one run"
        if first.part.count != other.part.count:
            raise ResultsError(f"{pair}: of {first.part.count} shards and of {other.part.count}")
        if first.info.seed != other.info.seed:
            raise ResultsError(f"{pair}: seed {first.info.seed} and seed {other.info.seed}")
        # The paths of rule files may differ, but not their contents.
        for name, a, b in differing(*({**s.info.options, OPTION: None} for s in (first, other))):
            raise ResultsError(f"{pair}: --{name.replace('_', '-')} {_show(a)} and {_show(b)}")
        # An empty shard records no rules.
        rules = {shard.info.basis[RULES] for shard in (first, other) if RULES in shard.info.basis}
        if len(rules) > 1:
            raise ResultsError(f"{pair}: the contents of their --rules differ")
        sources = ({SOURCE: info.basis.get(SOURCE)} for info in (first.info, other.info))
        versions = [*differing(first.info.versions, other.info.versions), *differing(*sources)]
        for name, a, b in () if different_versions else versions:
            raise ResultsError(
                f"{pair}: {name} {_show(a)} and {_show(b)}; --allow-different-versions merges them anyway"
            )
        if first.info.planned != other.info.planned:
            raise ResultsError(
                f"{pair}: they planned other operators ({_other_operators(first.info, other.info)}); run all "
                "shards from one state of the project and with one corpus"
            )


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and both values of each entry in which two mappings differ."""
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)


def _show(value: Any) -> str:
    if value is None or value == []:
        return "(none)"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _other_operators(a: RunInfo, b: RunInfo) -> str:
    operators_a, operators_b = ({(o, w) for part in info.planned for o, w in part.items()} for info in (a, b))
    names = sorted({name for name, _ in operators_a ^ operators_b})
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "") if names else "distributed differently"


def _parts(shards: Sequence[ShardRun]) -> list[MergedPart]:
    first = shards[0].info
    here = {shard.part.index: shard for shard in shards}
    parts: list[MergedPart] = []
    for index, planned in enumerate(first.planned, start=1):
        shard = here.get(index)
        if shard is None:
            lost, count = tuple(planned), len(first.planned)
            parts.append(
                MergedPart(index=index, count=count, state=ShardState.MISSING, operators=lost, unfinished=lost)
            )
            continue
        from_run = {n: getattr(shard.info, n) for n in ("run_id", "started", "finished", "exit_status", "host")}
        parts.append(MergedPart(**vars(shard.part), **from_run))
    return parts


def _combined(first: RunInfo, infos: Sequence[RunInfo], parts: Sequence[MergedPart]) -> RunInfo:
    statuses = [info.exit_status for info in infos if info.exit_status is not None]
    whole = all(part.state is ShardState.COMPLETE for part in parts)
    ids = " ".join(info.run_id for info in infos)
    began = min(info.run_id for info in infos).rsplit("-", 1)[0]
    return dataclasses.replace(
        first,
        run_id=f"{began}-{hashlib.sha256(ids.encode()).hexdigest()[:6]}",
        started=min(info.started for info in infos),
        finished=max(info.finished or info.started for info in infos),
        versions=_all_versions([info.versions for info in infos]),
        host=_common([info.host for info in infos]),
        basis=_common([info.basis for info in infos], allow_missing=True),
        notes=tuple(dict.fromkeys(note for info in infos for note in info.notes)),
        # An incomplete run has not succeeded.
        exit_status=_worst(statuses if whole else [*statuses, 1]),
        shard=None,
        operators=tuple(sorted({name for part in parts for name in part.operators})),
        unfinished=tuple(sorted({name for part in parts for name in part.unfinished})),
        shards=tuple(parts),
    )


#: pytest's exit statuses, worst first: internal error, interrupted, bad options, failures, success, no cases. A shard
#: without cases matters only if the others have none either.
_STATUSES = (3, 2, 4, 1, 0, 5)


def _worst(statuses: Sequence[int]) -> int:
    return min(statuses, key=lambda s: _STATUSES.index(s) if s in _STATUSES else -1, default=0)


def _all_versions(versions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return all distinct versions of each name, joined by commas."""
    names = dict.fromkeys(name for version in versions for name in version)
    return {n: ", ".join(dict.fromkeys(version[n] for version in versions if n in version)) for n in names}


def _common(facts: Sequence[Mapping[str, Any]], allow_missing: bool = False) -> dict[str, Any]:
    """Return the entries that all shards have in common; `allow_missing` also accepts those that some shards lack."""
    names = dict.fromkeys(name for fact in facts for name in fact)
    common = {}
    for name in names:
        values = [fact[name] for fact in facts if name in fact]
        if all(value == values[0] for value in values) and (allow_missing or len(values) == len(facts)):
            common[name] = values[0]
    return common


def _write(directories: Sequence[Path], out: Path, info: RunInfo) -> None:
    runs = [directory for directory in directories if layout.holds_run(directory)]
    with layout.replacing(out / layout.VERDICTS_FILE) as temporary, parquet.open_writer(temporary) as file:
        for table in parquet.tables(file for run in runs for file in store.files(run)):
            place = table.schema.get_field_index("run_id")
            ids = pa.repeat(pa.scalar(info.run_id), table.num_rows)
            file.write_table(table.set_column(place, table.schema.field(place), ids))
    write_flaky(out, frozenset().union(*map(read_flaky, runs)))
    _append(MINIMAL_FILE, runs, out)
    # Written last, because its existence makes the directory a run.
    write_run_info(out, info)


def _append(name: str, runs: Sequence[Path], out: Path) -> None:
    """Join the JSON lines of all runs in one file, without those that a crash cut short."""
    lines: dict[str, None] = {}
    for run in runs:
        try:
            text = (run / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ResultsError(f"cannot read {run / name}: {reason(error)}") from None
        lines.update(dict.fromkeys(line for line in text.splitlines() if _is_json(line)))
    if lines:
        with layout.replacing(out / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _copy_others(shards: Sequence[ShardRun], out: Path) -> None:
    """Copy what else is in the shards' directories, such as logs and reports of other tools."""
    for shard in shards:
        for path in sorted(shard.directory.iterdir()):
            if path.name in _RUN_FILES or path.name.startswith(".") or path.resolve() == out.resolve():
                continue
            target = out / SHARDS_DIRECTORY / str(shard.part.index) / path.name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target)
                else:
                    shutil.copy2(path, target)
            except (OSError, shutil.Error) as error:
                raise ResultsError(f"cannot copy {path} to {target}: {reason(error)}") from None
