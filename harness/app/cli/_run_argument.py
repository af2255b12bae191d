"""The run that a command is about: the one named, or the newest."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from harness.record import ResultsError, completeness, layout, newest

_Command = TypeVar("_Command", bound=Callable[..., Any])


def find_run(given: str | Path | None, cwd: Path | None = None) -> Path:
    """The run in the directory `given`, or the newest of the runs in it, or the newest below ``results/``.

    Raises:
        ResultsError: there is none.
    """
    if given is not None:
        directory = Path(given)
        # A directory of runs stands for its newest, be it a dataset or ``results/``.
        found = directory if layout.holds_run(directory) else newest(directory)
        if found is None:
            raise ResultsError(
                f"{directory} holds no run; give the directory that holds its {layout.RUN_FILE}, "
                "or leave it out for the newest"
            )
        warn_if_incomplete(found)
        return found
    found = newest((cwd or Path.cwd()) / layout.DEFAULT_PARENT)
    if found is None:
        raise ResultsError(
            f"there is no run below {layout.DEFAULT_PARENT}/; make one with `pytest harness`, "
            "or name its directory"
        )
    warn_if_incomplete(found)
    return found


def warn_if_incomplete(run: Path) -> None:
    """Say on stderr, in one line, what of a run is missing; nothing for a whole one.

    What cannot be read is left to those who read it.
    """
    with contextlib.suppress(ResultsError):
        missing = completeness(run).said
        if missing:
            click.echo(f"warning: {run} is incomplete: {missing}", err=True)


def runs_in(given: Sequence[Path]) -> list[Path]:
    """The runs that are named, and all of a directory of runs, be it a dataset or ``results/``.

    What is neither is left to those who read it.
    """
    found: list[Path] = []
    for path in given:
        below = sorted(p for p in path.iterdir() if layout.holds_run(p)) if path.is_dir() else []
        found += below if below and not layout.holds_run(path) else [path]
    return found


def run_option(function: _Command) -> _Command:
    """``--run DIR``, given to the function as `run`: a `Path`, the newest run's by default."""
    return click.option(
        "--run",
        metavar="DIR",
        default=None,
        callback=lambda ctx, parameter, value: find_run(value),
        help="The run; the newest below results/ by default.",
    )(function)


def run_argument(function: _Command) -> _Command:
    """``[RUN]`` or ``--run DIR``, given to the function as `run`: a `Path`, the newest run's by default."""

    @functools.wraps(function)
    def with_run(*, run_word: str | None, run_option: str | None, **rest: Any) -> Any:
        if run_word and run_option and Path(run_word) != Path(run_option):
            raise click.UsageError(f"two runs are named: {run_word} and --run {run_option}; name one")
        return function(run=find_run(run_word or run_option), **rest)

    option = click.option("--run", "run_option", metavar="DIR", help="The same as RUN.")
    argument = click.argument("run_word", required=False, metavar="[RUN]")
    return cast(_Command, argument(option(with_run)))


def json_option(function: _Command) -> _Command:
    """``--json``, given to the function as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")(function)
