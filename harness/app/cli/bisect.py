"""`conformance bisect`: which release of a package changed the verdict on a case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._models import is_model
from harness.app.cli._shared import example, find_run, json_option, names_option, print_json, rules_option, statuses

if TYPE_CHECKING:
    from harness.reproduce.releases import Change, Verdicts

#: The folder of installed releases, below the working directory; the corpus of failures is its neighbour.
_PLACE = Path(".conformance") / "releases"


SECTION = "dig"


@click.command(
    short_help="Find the release of a package that changed a verdict.",
    epilog=example(
        "conformance bisect 82129e6a --package onnxruntime",
        "conformance bisect 82129e6a --run results/RUN --package onnxscript --from 0.5.4",
        "conformance bisect model.onnx --package onnxruntime --from 1.28",
        "conformance bisect model.onnx --package onnxruntime --figure ms --from 1.28",
        "conformance bisect celu.json --backend ort-cpu --package onnxruntime --from 1.20 --to 1.31 --json",
    )
    + statuses("0 if a release changed the verdict; 1 if the verdicts are the same; 3 if no release has one"),
)
@click.argument("case", metavar="CASE_ID|FILE|MODEL")
@click.option(
    "--package",
    required=True,
    type=click.Choice(["onnxruntime", "onnxscript", "onnx", "openvino", "torch"]),
    help="Whose releases are tried.",
)
@click.option(
    "--figure",
    type=click.Choice(["ms", "memory", "sqnr", "flips"]),
    help="Of MODEL, find the release that changed this figure in place of the verdict.",
)
@click.option("--from", "first", metavar="VERSION", help="The oldest to try. Default: the oldest of all.")
@click.option("--to", "last", metavar="VERSION", help="The newest to try. Default: the newest of all.")
@click.option("--run", metavar="DIR", help="The run that has the case. Default: the newest in results/.")
@names_option("--converter", "converters", "Use this one instead of the recorded one. Repeatable.")
@names_option("--backend", "backends", "Use this one instead of the recorded one. Repeatable.")
@rules_option("Use these conversion functions.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    case: str,
    package: str,
    figure: str | None,
    first: str | None,
    last: str | None,
    run: str | None,
    converters: tuple[str, ...],
    backends: tuple[str, ...],
    rules: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Find the release of a package that changed the verdict on a case.

    CASE_ID is the id of a recorded or minimal case, or the beginning of one. FILE holds an invocation as
    JSON. MODEL is a model for `conformance check`: my_model.py:make_model, model.onnx. It is rerun with a few
    releases, by halving: the verdict is taken to change once.

    uv installs each release into .conformance/releases, where it stays. It is used in place of the installed
    release; all other packages are the installed ones. A release that has no wheel for this Python, or that
    does not work with the other packages, is passed over. Of torch, that may be gigabytes.

    With --figure, each release is measured against the oldest one, in pairs of processes. A change counts if no pair
    contradicts it and if it is large enough: a tenth of the time, 64 KiB a call, a decibel, a row.

    With --json: package, tried (release, verdict, missing), before, after, between.
    """
    if figure is not None and not is_model(case):
        raise click.UsageError("--figure is of a model: give FILE.py:FUNCTION, FILE.pt2 or FILE.onnx")
    words = _rerun_words(case, run, rules)
    chosen = [f"--converter={name}" for name in converters] + [f"--backend={name}" for name in backends]
    change = _search(case, package, (first, last), words, chosen, figure)
    _report(package, change, as_json)
    ctx.exit(0 if change.after else 1 if any(one.outcome for one in change.tried.values()) else 3)


def _search(
    case: str,
    package: str,
    ends: tuple[str | None, str | None],
    words: list[str],
    chosen: list[str],
    figure: str | None,
) -> Change:
    """Search the releases of a package.

    Args:
        case: The case as the user named it.
        package: The package.
        ends: The oldest and the newest release to try.
        words: The command that reruns the case.
        chosen: The options that choose converters and backends.
        figure: The figure to compare in place of the verdicts; None for these.
    """
    from harness.reproduce.releases import (
        NoReleases,
        Rerun,
        Verdicts,
        confirmed_verdicts,
        install_release,
        releases_of,
        search_releases,
    )

    try:
        releases = releases_of(package, *ends)
    except NoReleases as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"{package}: {len(releases)} releases from {releases[0]} to {releases[-1]}", err=True)
    rerun = Rerun([*words, *chosen], Path.cwd())
    measured = _Measured(figure, [words[1], *chosen]) if figure is not None else None

    def ask(release: str) -> Verdicts:
        installed = install_release(package, release, _PLACE.resolve())
        if installed.problem:
            answer = Verdicts("", installed.problem)
        elif measured is not None:
            answer = measured(installed.directory)
        else:
            answer = confirmed_verdicts(rerun, case, package, release, installed.directory)
        click.echo(f"  {release}: {answer.shown or answer.missing}", err=True)
        return answer

    return search_releases(releases, ask)


class _Measured:
    """Compares a figure of a model with each release against the first one that can be measured.

    Args:
        figure: The figure.
        words: The model, and the options of `conformance measure`.
    """

    def __init__(self, figure: str, words: list[str]) -> None:
        self._figure = figure
        self._words = words
        self._first: Path | None = None

    def __call__(self, place: Path) -> Verdicts:
        """Measure with the release that is installed in a folder."""
        from harness.present.figures_text import change_text
        from harness.reproduce.figures import MeasureCommand, NotMeasured, compare_figures
        from harness.reproduce.releases import Verdicts

        now = MeasureCommand(self._words, [place], Path.cwd())
        try:
            if self._first is None:
                now()
                self._first = place
                return Verdicts("the same", shown="what the others are measured against")
            before = MeasureCommand(self._words, [self._first], Path.cwd())
            changes = {str(change.figure): change for change in compare_figures(before, now)}
        except NotMeasured as error:
            return Verdicts("", str(error)[:200])
        if self._figure not in changes:
            return Verdicts("", f"the model has no {self._figure}")
        change = changes[self._figure]
        outcome = "worse" if change.is_worse else "better" if change.is_better else "the same"
        return Verdicts(outcome, shown=change_text(change))


def _rerun_words(case: str, run: str | None, rules: tuple[Path, ...]) -> list[str]:
    """Return the command that reruns a case, a file or a model, with the case and its rules."""
    from harness.pipeline.model_task import absolute_word
    from harness.plan.reexecute import recorded_model, recorded_rules

    words = ["check" if is_model(case) else "replay", absolute_word(case)]
    if not is_model(case) and not Path(case).is_file():
        directory = find_run(run).resolve()
        if (model := recorded_model(directory, case)) is not None:
            words, rules = ["check", model], rules or recorded_rules(directory)
        else:
            words += ["--run", str(directory)]
    return words + [f"--rules={file.resolve()}" for file in rules]


def _report(package: str, change: Change, as_json: bool) -> None:
    if as_json:
        print_json(
            "bisect",
            {
                "package": package,
                "tried": [
                    {"release": release, "verdict": one.shown or None, "missing": one.missing or None}
                    for release, one in change.tried.items()
                ],
                "before": change.before or None,
                "after": change.after or None,
                "between": list(change.between),
            },
        )
    elif change.after:
        click.echo(f"{package} {change.after} changed the verdict:")
        click.echo(f"  {change.before}: {change.tried[change.before].shown}")
        click.echo(f"  {change.after}: {change.tried[change.after].shown}")
        if change.between:
            click.echo(f"  or one of {', '.join(change.between)}, which could not be tried")
    else:
        known = {one.shown for one in change.tried.values() if one.outcome}
        click.echo(f"No release changed it: {known.pop()}" if known else "No release has a verdict.")
