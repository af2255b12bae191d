"""A run as one table, finished or not, and the rows of it that a person asks for by name."""

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

#: Parts that are read at once; a killed run may have thousands.
_THREADS = 4
#: Parts of which the rows come together.
_TOGETHER = 64


def finish(results_dir: Path, exit_status: int | None = None, notes: tuple[str, ...] = ()) -> RunInfo:
    """Make one ``verdicts.parquet`` of a run's parts and mark the run finished.

    To be called once every worker has closed its writer. A run that was killed may be finished later,
    and one that is finished already is left alone.

    Raises:
        ResultsError: a part is damaged, or the directory cannot be written; the parts are kept.
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
    # Before what tells how far the run came is removed.
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
    """The rows of a run, whether it is finished, goes on or was killed.

    Args:
        where: Keeps only the rows for which it holds: ``pc.field("outcome") == "crash"``.
        encoded: Whether columns whose words repeat come as dictionaries, for `harness.record.dictionary_encoding`.
        made: What is kept of each of the `pieces`. A column of long texts that it leaves out is never in
            memory as a whole.

    Raises:
        ResultsError: there is no run, or a file of it is damaged.
    """
    found = [made(parquet.schema_of(columns, encoded).empty_table())]
    chosen = files(results_dir)
    try:
        found += map(made, _pieces(chosen, columns, where, encoded))
    except ResultsError:
        if files(results_dir) == chosen:
            raise
        # The run has been finished, or has gone on, in the meantime.
        return read(results_dir, columns, where, encoded, made)
    return pa.concat_tables(found)


def pieces(
    results_dir: Path,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    encoded: bool = False,
) -> Iterator[pa.Table]:
    """As `read`, in order and some ten thousand rows at a time: so many are in memory at once.

    Raises:
        ResultsError: as `read`, also where the run is finished meanwhile.
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
            some = chosen[start : start + _TOGETHER]
            yield pa.concat_tables(pool.map(lambda f: parquet.read(f, columns, where, encoded), some))


def verdicts(results_dir: Path, where: pc.Expression | None = None) -> Iterator[Verdict]:
    """The rows of a run as verdicts; one file of it is in memory at a time."""
    for file in files(results_dir):
        try:
            yield from to_verdicts(parquet.read(file, where=where))
        except ValueError as error:
            raise parquet.damaged(file, error) from None


def words(results_dir: Path, column: str, where: pc.Expression | None = None) -> list[str]:
    """What a column of text holds, each word once and in order.

    Raises:
        ResultsError: the run cannot be read.
    """
    return sorted(set(numbered_column(read(results_dir, [column], where, encoded=True)[column])[1].to_pylist()))


def resolve_case(results_dir: Path, wanted: str, minimal: Iterable[Minimal] = ()) -> str:
    """The id of the one case of a run that `wanted` is, or begins.

    Args:
        results_dir: The run.
        wanted: The id or its beginning.
        minimal: Shrunk cases of the run whose ids are meant, too.

    Raises:
        ResultsError: no case or several begin so; near ones are named.
    """
    recorded = words(results_dir, "case_id", pc.starts_with(pc.field("case_id"), wanted)) if wanted else []
    shrunk = {m.minimal_id for m in minimal if wanted and m.minimal_id.startswith(wanted)}
    found = sorted({*recorded, *shrunk})
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        more = ", …" if len(found) > 3 else ""
        raise ResultsError(
            f"{wanted!r} begins {len(found)} cases of {results_dir}: {', '.join(found[:3])}{more}; give more of the id"
        )
    known = words(results_dir, "case_id")
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise ResultsError(f"{results_dir} has no case {wanted!r} among its {len(known)}{hint}")


def case(results_dir: Path, wanted: str) -> list[Verdict]:
    """Every row of one case, given its id or an unambiguous beginning of it."""
    return list(verdicts(results_dir, pc.field("case_id") == resolve_case(results_dir, wanted)))


def files(results_dir: Path) -> list[Path]:
    """The files that hold a run's rows.

    Raises:
        ResultsError: there is no run.
    """
    if not layout.holds_run(results_dir):
        raise ResultsError(f"{results_dir} holds no run; give the directory that holds its {layout.RUN_FILE}")
    finished = results_dir / layout.VERDICTS_FILE
    parts = [] if finished.exists() else layout.part_files(results_dir)
    # Of a run that is finished meanwhile the parts are removed while they are listed.
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
    """Names to keep, column by column of the record; an empty column keeps everything.

    Overloads, packets or globs of them, as after ``--op``; names or globs of the others.
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
        """The rows of a run that are selected.

        Args:
            where: A further condition.
            encoded: As for `read`.

        Raises:
            ResultsError: the run cannot be read, or holds nothing under a name that was asked for; near
                ones are named.
        """
        for name, wanted in vars(self).items():
            if not wanted:
                continue
            known = [word for word in words(results_dir, name) if word]
            chosen = [value for word in wanted for value in _named(results_dir, name, word, known)]
            condition = pc.field(name).isin(chosen)
            where = condition if where is None else where & condition
        return read(results_dir, columns, where, encoded)


def _named(results_dir: Path, column: str, word: str, known: Sequence[str]) -> list[str]:
    # These are checked where they are typed: that a run has none is an answer.
    if column in ("blame", "outcome", "stage"):
        return [word]
    if column == "overload":
        dotted = names.normalise(word)
        found = [
            name
            for name in known
            if fnmatch.fnmatchcase(name, dotted) or fnmatch.fnmatchcase(names.packet(name), dotted)
        ]
        near = names.near_names(dotted, known)
    else:
        found = [name for name in known if fnmatch.fnmatchcase(name, word)]
        near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if found:
        return found
    option = "op" if column == "overload" else column
    few = f"; it has {', '.join(known)}" if len(known) <= 12 else ""
    hint = f"; near: {', '.join(near)}" if near else few
    raise ResultsError(f"{results_dir} has no case of --{option} {word}{hint}")
