"""Read a run as one table, finished or not, and select rows by name."""

from __future__ import annotations

import difflib
import fnmatch
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.compare.verdict import Verdict
from harness.core import overloads as names
from harness.record import layout, parquet, progress
from harness.record.dictionary_encoding import numbered_column
from harness.record.json_lines import Minimal
from harness.record.layout import ResultsError, reason
from harness.record.parquet import to_verdicts
from harness.record.run_info import RunInfo, read_run_info, write_run_info

#: Parts that are read concurrently; a killed run may have thousands.
_THREADS = 4
#: Parts whose rows are combined into one table.
_TOGETHER = 64


def finish(results_dir: Path, exit_status: int | None = None, notes: tuple[str, ...] = ()) -> RunInfo:
    """Combine a run's parts into ``verdicts.parquet`` and mark the run finished.

    Call it when every worker has closed its writer. A killed run can be finished later; for a finished one nothing
    happens.

    Raises:
        ResultsError: A part is damaged, or the directory cannot be written; the parts are kept.
    """
    info = read_run_info(results_dir)
    if info.finished:
        return info
    verdicts, parts = results_dir / layout.VERDICTS_FILE, layout.part_files(results_dir)
    if not verdicts.exists():
        parquet.concatenate(parts, verdicts)
    came = progress.read(results_dir)
    planned = info.planned[info.shard["index"] - 1 if info.shard else 0] if info.planned else {}
    info = replace(
        info,
        finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
        exit_status=exit_status,
        operators=came.operators(planned),
        unfinished=came.unfinished(planned),
        notes=notes,
    )
    # Written before the progress files are removed.
    write_run_info(results_dir, info)
    _remove_parts(results_dir)
    return info


def read(
    results_dir: Path,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    encoded: bool = False,
    made: Callable[[pa.Table], pa.Table] = lambda piece: piece,
) -> pa.Table:
    """Return the rows of a run, which may be finished, in progress or killed.

    Args:
        results_dir: The run.
        columns: The columns to read; None means all.
        where: Keeps only rows that satisfy it: ``pc.field("outcome") == "crash"``.
        encoded: Read columns with repeated strings as dictionaries, for `harness.record.dictionary_encoding`.
        made: Transforms each of the `pieces`. A column of long texts that it drops is never in memory as a whole.

    Raises:
        ResultsError: The directory has no run, or one of its files is damaged.
    """
    tables = [made(parquet.schema_of(columns, encoded).empty_table())]
    chosen = files(results_dir)
    try:
        tables += map(made, _pieces(chosen, columns, where, encoded))
    except ResultsError:
        if files(results_dir) == chosen:
            raise
        # The run was finished or continued in the meantime.
        return read(results_dir, columns, where, encoded, made)
    return pa.concat_tables(tables)


def pieces(
    results_dir: Path,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    encoded: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of a run in order, about ten thousand at a time; the arguments are those of `read`.

    Raises:
        ResultsError: As for `read`, and also if the run is finished in the meantime.
    """
    return _pieces(files(results_dir), columns, where, encoded)


def _pieces(
    chosen: Sequence[Path], columns: Sequence[str] | None, where: pc.Expression | None, encoded: bool
) -> Iterator[pa.Table]:
    if len(chosen) == 1:
        yield from parquet.pieces(chosen[0], columns, where, encoded)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(chosen), _TOGETHER):
            group = chosen[start : start + _TOGETHER]
            yield pa.concat_tables(pool.map(lambda f: parquet.read(f, columns, where, encoded), group))


def verdicts(results_dir: Path, where: pc.Expression | None = None) -> Iterator[Verdict]:
    """Yield the rows of a run as verdicts, with one file in memory at a time."""
    for file in files(results_dir):
        try:
            yield from to_verdicts(parquet.read(file, where=where))
        except ValueError as error:
            raise parquet.damaged(file, error) from None


def distinct_values(results_dir: Path, column: str, where: pc.Expression | None = None) -> list[str]:
    """Return the distinct values of a text column, sorted.

    Raises:
        ResultsError: The run cannot be read.
    """
    return sorted(set(numbered_column(read(results_dir, [column], where, encoded=True)[column])[1].to_pylist()))


def resolve_case(results_dir: Path, wanted: str, minimal: Iterable[Minimal] = ()) -> str:
    """Return the id of the only case of a run whose id is or begins with `wanted`.

    Args:
        results_dir: The run.
        wanted: The id or a prefix of it.
        minimal: Shrunk cases of the run, whose ids may be given too.

    Raises:
        ResultsError: No case or several match; the message suggests similar ids.
    """
    recorded = distinct_values(results_dir, "case_id", pc.starts_with(pc.field("case_id"), wanted)) if wanted else []
    shrunk = {m.minimal_id for m in minimal if wanted and m.minimal_id.startswith(wanted)}
    matches = sorted({*recorded, *shrunk})
    if wanted in matches or len(matches) == 1:
        return wanted if wanted in matches else matches[0]
    if matches:
        ellipsis = ", …" if len(matches) > 3 else ""
        raise ResultsError(
            f"{wanted!r} begins {len(matches)} cases of {results_dir}: {', '.join(matches[:3])}{ellipsis}; "
            "give more of the id"
        )
    known = distinct_values(results_dir, "case_id")
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise ResultsError(f"{results_dir} has no case {wanted!r} among its {len(known)}{hint}")


def case(results_dir: Path, wanted: str) -> list[Verdict]:
    """Return every row of one case, given its id or an unambiguous prefix of it."""
    return list(verdicts(results_dir, pc.field("case_id") == resolve_case(results_dir, wanted)))


def files(results_dir: Path) -> list[Path]:
    """Return the files that hold a run's rows.

    Raises:
        ResultsError: There is no run.
    """
    if not layout.holds_run(results_dir):
        raise ResultsError(f"{results_dir} holds no run; give the directory that holds its {layout.RUN_FILE}")
    finished = results_dir / layout.VERDICTS_FILE
    parts = [] if finished.exists() else layout.part_files(results_dir)
    # Checked again: if the run was finished in the meantime, its parts were being removed while they were listed.
    return [finished] if finished.exists() else parts


def _remove_parts(results_dir: Path) -> None:
    directory = results_dir / layout.PARTS_DIRECTORY
    try:
        for file in [*directory.glob("*.parquet"), *progress.files(results_dir)]:
            file.unlink()
        for leftover in directory.glob(".*.tmp"):
            leftover.unlink()
        if directory.is_dir():
            for below in (layout.MERGED_DIRECTORY, layout.PENDING_DIRECTORY):
                shutil.rmtree(directory / below, ignore_errors=True)
            directory.rmdir()
    except OSError as error:
        raise ResultsError(f"cannot remove {directory}: {reason(error)}; its rows are kept twice") from None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Names to keep for each column of the record; an empty tuple keeps everything.

    Overloads may be given as after ``--op``: overloads, packets or globs. For the other columns, names or globs.
    """

    overload: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    converter: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    blame: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    stage: tuple[str, ...] = ()

    def read(
        self,
        results_dir: Path,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        encoded: bool = False,
    ) -> pa.Table:
        """Return the selected rows of a run.

        Args:
            results_dir: The run.
            columns: The columns to read.
            where: A further condition.
            encoded: See `read`.

        Raises:
            ResultsError: The run cannot be read, or has nothing under one of the names; the message suggests similar
                ones.
        """
        for name, wanted in vars(self).items():
            if not wanted:
                continue
            known = [value for value in distinct_values(results_dir, name) if value]
            chosen = [value for pattern in wanted for value in _matching(results_dir, name, pattern, known)]
            condition = pc.field(name).isin(chosen)
            where = condition if where is None else where & condition
        return read(results_dir, columns, where, encoded)


def _matching(results_dir: Path, column: str, pattern: str, known: Sequence[str]) -> list[str]:
    # The command line validates these, so a run without them is a valid answer.
    if column in ("blame", "outcome", "stage"):
        return [pattern]
    if column == "overload":
        matches = names.find_matches(pattern, known)
        near = names.near_names(pattern, known)
    else:
        matches = [name for name in known if fnmatch.fnmatchcase(name, pattern)]
        near = difflib.get_close_matches(pattern, known, n=3, cutoff=0.5)
    if matches:
        return matches
    option = "op" if column == "overload" else column
    few = f"; it has {', '.join(known)}" if len(known) <= 12 else ""
    hint = f"; near: {', '.join(near)}" if near else few
    raise ResultsError(f"{results_dir} has no case of --{option} {pattern}{hint}")
