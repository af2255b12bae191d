"""`conformance nightly`: a sweep in shards with everything that follows it, on any CI."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from harness.app.cli._shared import directory_option, example, statuses, waivers_option

SECTION = "run"

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: The rules of ``--keep``.
_RULES = ("last", "monthly")


def _rules(ctx: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Parse ``last=30``, as an option and a number of `conformance dataset keep`."""
    rules = []
    for word in words:
        name, _, number = word.partition("=")
        if name not in _RULES or not number.isdecimal():
            raise click.BadParameter(f"{word}: a rule is last=30 or monthly=12", ctx, option)
        rules.append((f"--{name}", int(number)))
    return tuple(rules)


def _pytest_option(name: str, default: str = "") -> Callable[[_Command], _Command]:
    text = f"As in `pytest harness`. Repeatable.{default}"
    return click.option(f"--{name}", multiple=True, metavar="NAME", help=text)


def _number(name: str, default: int, text: str) -> Callable[[_Command], _Command]:
    kind = click.IntRange(1)
    return click.option(name, type=kind, default=default, show_default=True, metavar="N", help=text)


@click.command(
    short_help="Run a whole night: sweep, compare, keep, show.",
    epilog=example(
        "conformance nightly --shards 4 --dataset runs",
        "conformance nightly --shard 3/8 --dataset s3://bucket/runs",
        "conformance nightly --finish --dataset s3://bucket/runs --keep last=30",
        "conformance nightly --on ray --dataset s3://bucket/runs",
        "conformance nightly --shards 2 -- -n 2 --shapes both",
    )
    + statuses("0; 1 if something is worse than the baseline, a shard is missing or incomplete, or a step failed"),
)
@click.option("--shard", default="", metavar="I/N", help="Run only this shard, into OUT/shards/I.")
@click.option("--on", default="", metavar="CLUSTER", help="Sweep on a cluster: ray, or ray://HOST:10001.")
@click.option("--finish", is_flag=True, help="Run only what comes after the shards.")
@_number("--shards", 1, "Number of shards.")
@click.option("--run", default="", metavar="NAME", help="With --on: the name of the sweep; the same name resumes one.")
@_number("--jobs", 1, "Number of shards that run in parallel.")
@click.option("--timeout", type=float, default=330.0, show_default=True, metavar="MIN", help="Minutes for a shard.")
@_pytest_option("op")
@_pytest_option("converter")
@_pytest_option("backend")
@_pytest_option("source", " Default: generated, programs, and the known cases of the last runs.")
@click.option("--seed", type=int, metavar="N", help="Seed of the draws. Default: the date; every night draws others.")
@_pytest_option("examples")
@click.option("--dataset", default="", metavar="DATASET", help="Keep the runs here: a directory, or a URL of fsspec.")
@click.option(
    "--shrink", type=float, default=300.0, show_default=True, metavar="S", help="Shrink failures for S seconds."
)
@click.option("--no-graphs", "graphs", flag_value=False, default=True, help="No graphs and scripts on the dashboard.")
@_number("--history", 30, "Runs on the dashboard.")
@click.option(
    "--keep",
    callback=_rules,
    multiple=True,
    metavar="RULE",
    help="Remove all runs from the dataset but these: last=30, monthly=12. Repeatable.",
)
@directory_option(
    "--baseline", "Compare with this. Default: golden/baseline if it exists, or the dataset's last run of this kind."
)
@waivers_option
@directory_option("--out", "Write here.", "nightly")
@click.option("--link", default="", metavar="URL", help="The dashboard's address, for the summary.")
@click.option(
    "--webhook",
    default=lambda: os.environ.get("CONFORMANCE_WEBHOOK", ""),
    metavar="URL",
    help="Post OUT/chat.json here; also from the environment variable CONFORMANCE_WEBHOOK.",
)
@click.argument("pytest", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST OPTIONS]")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run a whole night, or the part of it that --shard, --on or --finish names.

    It sweeps in shards, merges them, compares the run with the baseline, keeps it in a dataset, builds a site and
    writes a summary. Each step is a command of its own with a log in OUT/logs; if one fails, the others still give
    their results.

    \b
    OUT/shards/I/    the record of shard I        OUT/summary.md     the job's page
    OUT/run/         the merged run               OUT/chat.json      the message for a chat's webhook
    OUT/site/        the dashboard                OUT/gate.md        the differences from the baseline
    OUT/failures.json                             OUT/logs/          the output of every step
    OUT/known.jsonl  a case of every root cause of the last nights, which this one tries again
    """
    from harness.app.nightly import NightOptions, run_night

    ctx.exit(run_night(NightOptions(**_checked(given))))


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, once they can be carried out."""
    if sum(map(bool, (given["shard"], given["on"], given["finish"]))) > 1:
        raise click.UsageError("--shard, --on and --finish each name a part of the night: give one of them")
    out, baseline = given["out"], given["baseline"]
    taken = [name for name in ("run", *["shards"] * (not given["finish"])) if (out / name).exists()]
    if not given["shard"] and not given["on"] and taken:
        raise click.UsageError(f"{out} already holds a night: give another --out, or delete it")
    if baseline is not None and not (baseline / "baseline.json").is_file():
        raise click.UsageError(f"--baseline {baseline} has no baseline.json: record one with `conformance baseline`")
    seed = given["seed"] if given["seed"] is not None else int(time.strftime("%Y%m%d", time.gmtime()))
    return {**given, "seed": seed}
