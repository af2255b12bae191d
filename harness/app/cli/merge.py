"""`conformance merge`: make one run of its shards."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import directory_option, emit, example, json_option, line, print_json, statuses
from harness.core.text import count, listed, plain

_SHARD = ("index", "count", "state", "operators", "unfinished")


SECTION = "store"


@click.command(
    short_help="Merge the runs of shards into one run.",
    epilog=example(
        "pytest harness --shard 1/2 --results-dir shards/1",
        "pytest harness --shard 2/2 --results-dir shards/2",
        "conformance merge shards/1 shards/2 --out results/NIGHTLY",
    )
    + statuses("0 if all shards are there and whole; 1 if something is missing"),
)
@click.argument("shards", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SHARD_RUN...")
@directory_option("--out", "Where to write the run.", required=True, metavar="RUN")
@click.option(
    "--allow-different-versions",
    is_flag=True,
    help="Merge shards although they ran with different versions. The run then names all versions.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, shards: tuple[Path, ...], out: Path, allow_different_versions: bool, as_json: bool
) -> None:
    """Merge the runs of `pytest harness --shard I/N` into one run.

    All must have the same seed, options and versions. If a shard is absent, empty or damaged, it is missing
    from the run. If a shard was killed, the run has its recorded part. Every command names the results that such a run
    lacks, and none counts it as passing.

    With --json: run, run_id, verdicts, complete, set_aside, shards (index, count, state, operators,
    unfinished).
    """
    from harness.record import store
    from harness.record.merging import merge
    from harness.record.progress import completeness
    from harness.record.run_info import ShardState

    merged = merge(shards, out, different_versions=allow_different_versions)
    there = completeness(out)
    verdicts = store.read(out, ["case_id"]).num_rows
    if as_json:
        print_json(
            "merge",
            {
                "run": str(out),
                "run_id": merged.info.run_id,
                "verdicts": verdicts,
                "complete": there.complete,
                "set_aside": list(merged.set_aside),
                "shards": [{name: getattr(part, name) for name in _SHARD} for part in there.parts],
            },
        )
        ctx.exit(int(not there.complete))
    for message in merged.set_aside:
        emit(Text(f"set aside: {plain(message, 300)}", style="bold red"))
    for part in there.parts:
        if part.state is not ShardState.COMPLETE:
            lacking = f"{len(part.unfinished):,} of {count(len(part.operators), 'operator')} lack results"
            names = f": {listed(part.unfinished, 6)}" if part.unfinished else ""
            message = f"shard {part.index}/{part.count} {part.state}: {lacking}{names}"
            emit(Text(message, style="bold red"))
    emit(
        Text(
            f"{count(len(there.operators) - len(there.unfinished), 'operator')} of "
            f"{len(there.operators):,}, {count(verdicts, 'verdict')}"
        )
    )
    emit(line(f"written to {plain(str(out))}"))
    ctx.exit(int(not there.complete))
