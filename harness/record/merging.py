"""One run from its shards, with what is missing named."""

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

#: Below the merged run: what a shard's directory holds beside a run, by its number.
SHARDS_DIRECTORY = "shards"

_OF_A_RUN = {
    layout.RUN_FILE,
    layout.VERDICTS_FILE,
    layout.PARTS_DIRECTORY,
    layout.WITHOUT_RULES_DIRECTORY,
    FLAKY_FILE,
    MINIMAL_FILE,
}


@dataclass(frozen=True)
class ShardRun:
    """What one shard left."""

    directory: Path
    info: RunInfo
    part: Part

    @property
    def name(self) -> str:
        """For messages."""
        return f"shard {self.part.index}/{self.part.count} ({self.directory})"


@dataclass(frozen=True)
class Merged:
    """What a merge came to.

    Attributes:
        set_aside: Directories that gave nothing, each with why, in one line.
    """

    info: RunInfo
    set_aside: tuple[str, ...]


def merge(directories: Sequence[Path], out: Path, *, different_versions: bool = False) -> Merged:
    """Write the run that `directories` hold shards of to `out`.

    A directory that holds no run, or a damaged one, is set aside, and its shard is missing then.

    Args:
        out: May exist, with anything in it but a run.
        different_versions: Merge what ran with different versions anyway.

    Raises:
        ResultsError: there is no shard at all, they do not belong together, one is given twice, or `out`
            holds a run or cannot be written.
    """
    shards, set_aside = _found(directories)
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
        first: What is the same for all of them is taken from here.
        infos: Of the runs in `directories`.
        parts: All shards of the run, those that are missing included.
        out: Holds no run. It is made where there is none.

    Raises:
        ResultsError: something cannot be read or written.
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


def _found(directories: Sequence[Path]) -> tuple[list[ShardRun], list[str]]:
    shards: dict[tuple[int, int], ShardRun] = {}
    set_aside: list[str] = []
    for directory in directories:
        try:
            info = read_run_info(directory)
            found = completeness(directory).parts[0]
            for _ in parquet.tables(store.files(directory)):
                pass
            read_flaky(directory)
        except ResultsError as error:
            set_aside.append(str(error))
            continue
        if info.shard is None:
            whole = "is a whole run, not a shard (pytest harness --shard I/N)"
            raise ResultsError(f"{directory} {'was merged already' if info.shards else whole}: leave it out")
        shard = ShardRun(directory, info, found)
        twice = shards.setdefault((found.index, found.count), shard)
        if twice is not shard:
            raise ResultsError(
                f"shard {found.index}/{found.count} is given twice, in {twice.directory} and in {directory}: "
                "leave one out"
            )
    return [shards[place] for place in sorted(shards)], set_aside


def _check(shards: Sequence[ShardRun], different_versions: bool) -> None:
    """Raise a `ResultsError` where two are not of one run; it says what differs."""
    first = shards[0]
    for other in shards[1:]:
        pair = f"{first.name} and {other.name} are not of one run"
        if first.part.count != other.part.count:
            raise ResultsError(f"{pair}: of {first.part.count} shards and of {other.part.count}")
        if first.info.seed != other.info.seed:
            raise ResultsError(f"{pair}: seed {first.info.seed} and seed {other.info.seed}")
        # Where their rules were may differ, what these say may not.
        for name, a, b in differing(*({**s.info.options, OPTION: None} for s in (first, other))):
            raise ResultsError(f"{pair}: --{name.replace('_', '-')} {_said(a)} and {_said(b)}")
        # An empty shard says nothing of rules.
        rules = {shard.info.basis[RULES] for shard in (first, other) if RULES in shard.info.basis}
        if len(rules) > 1:
            raise ResultsError(f"{pair}: their --rules say other things")
        sources = ({SOURCE: info.basis.get(SOURCE)} for info in (first.info, other.info))
        versions = [*differing(first.info.versions, other.info.versions), *differing(*sources)]
        for name, a, b in () if different_versions else versions:
            raise ResultsError(
                f"{pair}: {name} {_said(a)} and {_said(b)}; --allow-different-versions merges them anyway"
            )
        if first.info.planned != other.info.planned:
            raise ResultsError(
                f"{pair}: they planned other operators ({_other_operators(first.info, other.info)}); run all "
                "shards from one state of the project and with one corpus"
            )


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name and both values of what two mappings do not have alike."""
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)


def _said(value: Any) -> str:
    if value is None or value == []:
        return "(none)"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _other_operators(a: RunInfo, b: RunInfo) -> str:
    one, two = ({(o, w) for part in info.planned for o, w in part.items()} for info in (a, b))
    names = sorted({name for name, _ in one ^ two})
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "") if names else "distributed otherwise"


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
        of_it = {n: getattr(shard.info, n) for n in ("run_id", "started", "finished", "exit_status", "host")}
        parts.append(MergedPart(**vars(shard.part), **of_it))
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
        versions=_together([info.versions for info in infos]),
        host=_shared([info.host for info in infos]),
        basis=_shared([info.basis for info in infos], own=True),
        notes=tuple(dict.fromkeys(note for info in infos for note in info.notes)),
        # A run that lacks something has not succeeded.
        exit_status=_worst(statuses if whole else [*statuses, 1]),
        shard=None,
        operators=tuple(sorted({name for part in parts for name in part.operators})),
        unfinished=tuple(sorted({name for part in parts for name in part.unfinished})),
        shards=tuple(parts),
    )


#: pytest's exit statuses, the worst first: internal error, interrupted, bad options, failures, success. That
#: a shard drew no case (5) matters only if the others drew none either.
_STATUSES = (3, 2, 4, 1, 0, 5)


def _worst(statuses: Sequence[int]) -> int:
    return min(statuses, key=lambda s: _STATUSES.index(s) if s in _STATUSES else -1, default=0)


def _together(versions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """All versions of each name: one, where the shards agree."""
    names = dict.fromkeys(name for version in versions for name in version)
    return {n: ", ".join(dict.fromkeys(version[n] for version in versions if n in version)) for n in names}


def _shared(facts: Sequence[Mapping[str, Any]], own: bool = False) -> dict[str, Any]:
    """What all shards say alike; with `own` also what only some have anything to say of."""
    names = dict.fromkeys(name for fact in facts for name in fact)
    found = {}
    for name in names:
        said = [fact[name] for fact in facts if name in fact]
        if all(value == said[0] for value in said) and (own or len(said) == len(facts)):
            found[name] = said[0]
    return found


def _write(directories: Sequence[Path], out: Path, info: RunInfo) -> None:
    runs = [directory for directory in directories if layout.holds_run(directory)]
    with layout.replacing(out / layout.VERDICTS_FILE) as temporary, parquet.open_writer(temporary) as file:
        for table in parquet.tables(file for run in runs for file in store.files(run)):
            place = table.schema.get_field_index("run_id")
            ids = pa.repeat(pa.scalar(info.run_id), table.num_rows)
            file.write_table(table.set_column(place, table.schema.field(place), ids))
    write_flaky(out, frozenset().union(*map(read_flaky, runs)))
    _append(MINIMAL_FILE, runs, out)
    # Last: from now on it is a run.
    write_run_info(out, info)


def _append(name: str, runs: Sequence[Path], out: Path) -> None:
    """Put the JSON lines of all runs in one file, without those that a crash cut short."""
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
    """Keep what is in a shard's directory and no part of a run: logs, reports of other tools."""
    for shard in shards:
        for path in sorted(shard.directory.iterdir()):
            if path.name in _OF_A_RUN or path.name.startswith(".") or path.resolve() == out.resolve():
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
