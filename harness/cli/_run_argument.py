"""The run that a command is about: the one named, or the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.record import layout
from harness.record.errors import ResultsError
from harness.record.run_info import newest

_Command = TypeVar("_Command", bound=Callable[..., Any])


def find_run(given: str | Path | None, cwd: Path | None = None) -> Path:
    """The run in the directory `given`, or the newest below ``results/``.

    Raises:
        ResultsError: there is none.
    """
    if given is not None:
        directory = Path(given)
        if not layout.holds_run(directory):
            raise ResultsError(
                f"{directory} holds no run; give the directory that holds its {layout.RUN_FILE}, "
                "or leave it out for the newest"
            )
        return directory
    found = newest((cwd or Path.cwd()) / layout.DEFAULT_PARENT)
    if found is None:
        raise ResultsError(
            f"there is no run below {layout.DEFAULT_PARENT}/; make one with `pytest harness`, "
            "or name its directory"
        )
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
    """``[RUN]``, given to the function as `run`: a `Path`, the newest run's by default."""
    return click.argument(
        "run",
        required=False,
        metavar="[RUN]",
        callback=lambda ctx, parameter, value: find_run(value),
    )(function)


def json_option(function: _Command) -> _Command:
    """``--json``, given to the function as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")(function)
