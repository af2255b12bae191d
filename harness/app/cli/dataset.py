"""`conformance dataset`: runs that are kept together, on a disk or in a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from harness.app.cli._shared import directory_option, emit, example, json_option, line, print_json, statuses
from harness.core.text import count, plain
from harness.record.archive.archive import (
    Addition,
    ArchiveContents,
    ArchivedRun,
    DamagedRun,
    Dataset,
    Quarantined,
    require_run,
)
from harness.record.layout import ResultsError

_dataset = click.argument("dataset", metavar="DATASET")
_last = click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N runs.")


SECTION = "store"


@click.group(
    short_help="Keep runs together, on a disk or in a bucket.",
)
def command() -> None:
    """Keep runs together, as Parquet partitioned by run, on a disk or at any URL that fsspec knows.

    \b
    A DATASET is a directory or a URL: nightly/, s3://bucket/conformance, gs://…, abfs://….
    A URL needs the package of its protocol (pip install s3fs), and fsspec finds the credentials.
    DuckDB reads a dataset directly:  SELECT … FROM 'DATASET/run_id=*/verdicts.parquet'
    (use read_parquet(…, union_by_name = true) if runs of older versions lack a column).
    On a disk, every other command takes DATASET/run_id=RUN_ID as a RUN, and DATASET as its newest run.
    """


@command.command(
    epilog=example(
        "conformance dataset add results/RUN --to nightly",
        "conformance dataset add results/* --to s3://bucket/conformance",
    )
    + statuses("0 if the dataset has all of them now; 1 if some were set aside or refused")
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--to", "dataset", required=True, metavar="DATASET", help="Made if it does not exist.")
@click.option("--replace", is_flag=True, help="Replace a run that the dataset has with other rows.")
@json_option
@click.pass_context
def add(ctx: click.Context, runs: tuple[Path, ...], dataset: str, replace: bool, as_json: bool) -> None:
    """Add runs to a dataset. Adding a run twice changes nothing.

    A killed or damaged run is set aside in DATASET/set-aside/, where no query finds it. Its reason.json says
    why.

    With --json: added, a list of run, run_id, became, why.
    """
    target = Dataset(dataset)
    for run in runs:
        # Report a typing error before anything is done.
        require_run(run)
    done: list[Addition] = []
    for run in runs:
        done.append(target.add(run, replace=replace))
        if not as_json:
            _say(done[-1])
    if as_json:
        print_json("dataset-add", {"added": [_addition_data(one) for one in done]})
    ctx.exit(int(not all(one.result.is_there for one in done)))


@command.command("list", epilog=example("conformance dataset list nightly --last 30") + statuses("0"))
@_dataset
@_last
@json_option
def list_runs(dataset: str, last: int | None, as_json: bool) -> None:
    """List the runs of a dataset, oldest first, and the damaged ones with the reason.

    With --json: runs (run_id, started, finished, exit_status, seed, verdicts, bytes, unfinished,
    converters, backends, versions), damaged, set_aside.
    """
    contents = Dataset(dataset).contents()
    runs = contents.select(last=last)
    if as_json:
        print_json(
            "dataset-list",
            {
                "runs": [_entry_data(run) for run in runs],
                "damaged": [{"run_id": bad.run_id, "reason": bad.reason} for bad in contents.damaged],
                "set_aside": [_aside_data(aside) for aside in contents.aside],
            },
        )
        return
    if runs:
        emit(_table(runs))
    total = sum(run.bytes for run in contents.runs)
    emit(Text(f"{count(len(contents.runs), 'run')}, {_size(total)}"))
    for text in _complaints(contents):
        emit(line(text, "bold red"))


@command.command(epilog=example("conformance dataset keep nightly --last 14 --monthly 12 --delete") + statuses("0"))
@_dataset
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Keep the newest N.")
@click.option("--monthly", type=click.IntRange(min=1), metavar="N", help="Keep the newest of each of N months.")
@click.option("--delete", is_flag=True, help="Remove the others. Without it, they are only listed.")
@json_option
def keep(dataset: str, last: int | None, monthly: int | None, delete: bool, as_json: bool) -> None:
    """Remove old runs from a dataset: all that neither --last nor --monthly keeps.

    The newest run is always kept. Months are those that have a run, in UTC. To remove runs by their age, or
    runs that were set aside, give the bucket a lifecycle rule.

    With --json: kept and removed (lists of run_id and bytes), deleted.
    """
    if last is None and monthly is None:
        raise click.UsageError("say what to keep: --last N, --monthly N")
    target = Dataset(dataset)
    contents = target.contents()
    kept = contents.ids_to_keep(last or 0, monthly or 0)
    sides: dict[str, list[ArchivedRun]] = {"kept": [], "removed": []}
    for run in contents.runs:
        sides["kept" if run.info.run_id in kept else "removed"].append(run)
    for run in sides["removed"] if delete else ():
        target.remove(run)
    if as_json:
        data = {side: [{"run_id": run.info.run_id, "bytes": run.bytes} for run in runs] for side, runs in sides.items()}
        print_json("dataset-keep", {**data, "deleted": delete})
        return
    verb = "removed" if delete else "would be removed"
    for run in contents.runs:
        emit(line(f"{run.info.run_id}  {'kept' if run.info.run_id in kept else verb}"))
    size = _size(sum(run.bytes for run in sides["removed"]))
    runs = count(len(sides["removed"]), "run")
    message = f"{runs} {verb}, {size}{'' if delete else ': add --delete'}"
    emit(Text(message if sides["removed"] else "nothing to remove"))


@command.command(
    epilog=example(
        "conformance dataset fetch s3://bucket/conformance --last 30 --out history",
        "conformance dashboard $(conformance dataset fetch nightly --last 30) --out site",
        "conformance dataset fetch nightly 20261121T1724 --out results",
    )
    + statuses("0; 1 if a run is damaged; the others are fetched")
)
@_dataset
@click.argument("names", nargs=-1, metavar="[RUN_ID]...")
@_last
@directory_option("--out", "Where to make a directory for each run.", "results")
@click.option("--set-aside", is_flag=True, help="Move damaged runs to DATASET/set-aside/.")
@json_option
@click.pass_context
def fetch(
    ctx: click.Context,
    dataset: str,
    names: tuple[str, ...],
    last: int | None,
    out: Path,
    set_aside: bool,
    as_json: bool,
) -> None:
    """Copy runs of a dataset to this machine, and print their directories, oldest first.

    RUN_ID is the id of a run or the beginning of it. Without one, all runs are copied. A run that is here
    already is not copied again.

    With --json: fetched (run_id, path), damaged (run_id, reason, moved_to).
    """
    source = Dataset(dataset)
    contents = source.contents()
    fetched: list[tuple[str, Path]] = []
    damaged = list(contents.damaged)
    for run in contents.select(names, last):
        try:
            fetched.append((run.info.run_id, source.fetch(run, out)))
        except ResultsError as error:
            damaged.append(DamagedRun(run.info.run_id, str(error)))
    moved = [(bad, _set_aside(source, bad) if set_aside else None) for bad in damaged]
    for bad, to in moved:
        click.echo(f"left out: {_damage(bad, to)}", err=True)
    if as_json:
        print_json(
            "dataset-fetch",
            {
                "fetched": [{"run_id": run_id, "path": str(path)} for run_id, path in fetched],
                "damaged": [_damage_data(bad, to) for bad, to in moved],
            },
        )
    else:
        for _, path in fetched:
            click.echo(path)
    ctx.exit(int(bool(damaged)))


@command.command(
    epilog=example("conformance dataset check nightly", "conformance dataset check nightly --set-aside")
    + statuses("0 if every run is sound; 1 if one is not")
)
@_dataset
@click.option("--set-aside", is_flag=True, help="Move damaged runs to DATASET/set-aside/.")
@json_option
@click.pass_context
def check(ctx: click.Context, dataset: str, set_aside: bool, as_json: bool) -> None:
    """Read every run of a dataset completely and compare all checksums.

    With --json: damaged, a list of run_id, reason, moved_to (null if it was left).
    """
    target = Dataset(dataset)
    found = [(bad, _set_aside(target, bad) if set_aside else None) for bad in target.check()]
    if as_json:
        print_json("dataset-check", {"damaged": [_damage_data(bad, to) for bad, to in found]})
    else:
        for bad, to in found:
            emit(line(_damage(bad, to), "bold red"))
        emit(Text(count(len(found), "damaged run") if found else "every run is sound"))
    ctx.exit(int(bool(found)))


def _set_aside(dataset: Dataset, bad: DamagedRun) -> str | None:
    """Move a damaged run aside and return its new path; None if it could not be moved."""
    try:
        return dataset.set_aside(bad)
    except ResultsError:
        return None


def _damage(bad: DamagedRun, to: str | None) -> str:
    return f"{plain(bad.run_id)}: {plain(bad.reason)}" + (f"; moved to {to}" if to else "")


def _damage_data(bad: DamagedRun, to: str | None) -> dict[str, Any]:
    return {"run_id": bad.run_id, "reason": bad.reason, "moved_to": to}


def _say(done: Addition) -> None:
    click.echo(f"{plain(done.run_id)}: {done.result}" + (f": {plain(done.why)}" if done.why else ""))


def _complaints(contents: ArchiveContents) -> list[str]:
    found = [f"damaged: {plain(bad.run_id)}: {plain(bad.reason)}" for bad in contents.damaged]
    return found + [f"set aside: {plain(aside.name)}: {plain(aside.reason)}" for aside in contents.aside]


def _table(runs: list[ArchivedRun]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("run", "started"):
        table.add_column(name, no_wrap=True)
    table.add_column("converter → backend", overflow="fold")
    for name in ("verdicts", "lost", "size", "exit"):
        table.add_column(name, justify="right")
    for run in runs:
        info = run.info
        status = "-" if info.exit_status is None else str(info.exit_status)
        table.add_row(
            *map(Text, (plain(info.run_id), plain(info.started[:16].replace("T", " ")), plain(_path(run)))),
            *(f"{run.rows:,}", _lost(run), _size(run.bytes), status),
        )
    return table


def _lost(run: ArchivedRun) -> str:
    lacking = len(run.info.unfinished)
    return f"{lacking:,} of {len(run.info.operators):,}" if lacking else ""


def _path(run: ArchivedRun) -> str:
    return " → ".join(", ".join(_names(run, kind)) or "-" for kind in ("converter", "backend"))


def _names(run: ArchivedRun, kind: str) -> list[str]:
    given = run.info.options.get(kind)
    return [str(name) for name in given] if isinstance(given, list) else []


def _entry_data(run: ArchivedRun) -> dict[str, Any]:
    info = run.info
    return {
        "run_id": info.run_id,
        "started": info.started,
        "finished": info.finished,
        "exit_status": info.exit_status,
        "seed": info.seed,
        "verdicts": run.rows,
        "bytes": run.bytes,
        "unfinished": list(info.unfinished),
        "converters": _names(run, "converter"),
        "backends": _names(run, "backend"),
        "versions": dict(info.versions),
    }


def _addition_data(one: Addition) -> dict[str, Any]:
    return {"run": str(one.run), "run_id": one.run_id, "became": str(one.result), "why": one.why}


def _aside_data(aside: Quarantined) -> dict[str, Any]:
    return {
        "name": aside.name,
        "reason": aside.reason,
        "since": aside.since.isoformat() if aside.since else None,
    }


def _size(number: int) -> str:
    """Format bytes for people, in powers of ten."""
    size, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
