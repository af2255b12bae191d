"""Helpers that the commands share: output, choice of the run, and common options."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from harness.compare.verdict import Outcome, Stage
from harness.core.documents import json_text
from harness.core.overloads import UnknownOperator, match
from harness.core.plugins import Unavailable, UnknownName
from harness.record import layout
from harness.record.layout import ResultsError
from harness.record.progress import completeness
from harness.record.run_info import newest
from harness.record.store import Selection

if TYPE_CHECKING:
    # `golden check` needs few packages: neither rich nor PyTorch.
    from rich.console import RenderableType
    from rich.text import Text

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: A file or a pipe has no width; lines of a hundred columns read well in both.
_PLAIN_WIDTH = 100


def emit(*parts: RenderableType) -> None:
    """Print for people. A `Text` with ``no_wrap`` is never wrapped."""
    from rich.console import Console
    from rich.text import Text

    coloured = sys.stdout.isatty()
    console = (
        Console(highlight=False)
        if coloured
        else Console(file=sys.stdout, width=_PLAIN_WIDTH, color_system=None, highlight=False)
    )
    for part in parts:
        unbroken = isinstance(part, Text) and bool(part.no_wrap)
        if coloured:
            console.print(part, soft_wrap=unbroken)
            continue
        with console.capture() as capture:
            console.print(part, soft_wrap=unbroken)
        # rich fills lines up with blanks, which a pipe has no use for.
        click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def line(words: str, style: str = "") -> Text:
    """Return a line for copying: a command, a path, a link."""
    from rich.text import Text

    return Text(words, style=style, no_wrap=True)


def say_step(step: str) -> None:
    """Print a command's next step on stderr, for a person who waits."""
    click.echo(f"… {step}", err=True)


def print_json(name: str, data: Mapping[str, Any]) -> None:
    """Print a document of `harness.present.json_documents` for programs."""
    from harness.present.json_documents import label_document

    click.echo(json_text(label_document(name, data)))


def example(*lines: str) -> str:
    """Return the examples at the end of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def statuses(text: str) -> str:
    """Return the exit statuses at the end of a help text."""
    return f"\n\nExit status: {text}; 2 if the command line is invalid."


def find_run(given: str | Path | None, cwd: Path | None = None) -> Path:
    """Return the run in `given`, the newest of the runs in it, or without `given` the newest in ``results/``.

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
            f"{layout.DEFAULT_PARENT}/ has no run: make one with `{layout.run_command(cwd)}`, or name its directory"
        )
    warn_if_incomplete(found)
    return found


def warn_if_incomplete(run: Path) -> None:
    """Print on stderr, in one line, the results that a run lacks. Readers report an unreadable run themselves."""
    with contextlib.suppress(ResultsError):
        missing = completeness(run).summary
        if missing:
            click.echo(f"warning: {run} is incomplete: {missing}", err=True)


def runs_in(given: Sequence[Path]) -> list[Path]:
    """Return the named runs; for a directory of runs, such as a dataset, all runs in it."""
    found: list[Path] = []
    for path in given:
        below = sorted(p for p in path.iterdir() if layout.holds_run(p)) if path.is_dir() else []
        found += below if below and not layout.holds_run(path) else [path]
    return found


def run_option(function: _Command) -> _Command:
    """Add ``--run DIR``, which the function gets as `run`: a `Path`, by default of the newest run."""
    return click.option(
        "--run",
        metavar="DIR",
        default=None,
        callback=lambda ctx, parameter, value: find_run(value),
        help="The run. Default: the newest in results/.",
    )(function)


def run_argument(function: _Command) -> _Command:
    """Add ``[RUN]`` or ``--run DIR``, which the function gets as `run`: a `Path`."""

    @functools.wraps(function)
    def call_with_run(*, run_word: str | None, run_option: str | None, **rest: Any) -> Any:
        if run_word and run_option and Path(run_word) != Path(run_option):
            raise click.UsageError(f"two runs are named: {run_word} and --run {run_option}; name one")
        return function(run=find_run(run_word or run_option), **rest)

    option = click.option("--run", "run_option", metavar="DIR", help="The same as RUN.")
    argument = click.argument("run_word", required=False, metavar="[RUN]")
    return cast(_Command, argument(option(call_with_run)))


def json_option(function: _Command) -> _Command:
    """Add ``--json``, which the function gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")(function)


BLAMES = ("converter", "transform", "backend", "pytorch", "spec", "unknown")

_OPTIONS: dict[str, tuple[str, Any, str]] = {
    "overload": ("--op", None, "Operator, packet or glob: celu, aten::add.Tensor, 'aten.upsample_*'."),
    "backend": ("--backend", None, "Backend: ort-cpu."),
    "converter": ("--converter", None, "Converter: dynamo."),
    "dtype": ("--dtype", None, "dtype: float16."),
    "family": ("--family", None, "Family of operator cases: pooling."),
    "blame": ("--blame", click.Choice(BLAMES), "Whose defect it is."),
    "outcome": (
        "--outcome",
        click.Choice([str(outcome) for outcome in Outcome if outcome.is_failure]),
        "How the case ended.",
    ),
    "stage": ("--stage", click.Choice([str(stage) for stage in Stage]), "Where it ended."),
}


def selecting(*names: str) -> Callable[[_Command], _Command]:
    """Repeatable options for the columns `names`, which the function gets as `selection`."""

    def decorate(function: _Command) -> _Command:
        @functools.wraps(function)
        def selected(**given: Any) -> Any:
            chosen = {name: given.pop(f"select_{name}") for name in names}
            return function(selection=Selection(**chosen), **given)

        command: Callable[..., Any] = selected
        for name in reversed(names):
            flag, kind, text = _OPTIONS[name]
            metavar = "NAME" if kind is None else None
            option = click.option(
                flag, f"select_{name}", multiple=True, type=kind, metavar=metavar, help=f"{text} Repeatable."
            )
            command = option(command)
        return cast(_Command, command)

    return decorate


def waivers_option(function: _Command) -> _Command:
    """Add ``--waivers FILE``, which the function gets as `waivers`: a `Path`, or None."""
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    words = "Failures that this TOML file expects are not worse; the user guide describes it."
    return click.option("--waivers", type=kind, metavar="FILE", help=words)(function)


def names_option(flag: str, parameter: str, help_text: str) -> Callable[[_Command], _Command]:
    """Return a repeatable option for names, which the function gets as `parameter`."""
    return click.option(flag, parameter, multiple=True, metavar="NAME", help=help_text)


def directory_option(
    flag: str, help_text: str, default: str | None = None, *, name: str | None = None, **more: Any
) -> Callable[[_Command], _Command]:
    """Return an option for a directory, which need not exist; the function gets it as `name`, or as in `flag`."""
    kind = click.Path(path_type=Path, file_okay=False)
    flags = [flag] if name is None else [flag, name]
    shows = default is not None
    return click.option(*flags, type=kind, default=default, show_default=shows, help=help_text, **more)


def file_option(flag: str, help_text: str, *, required: bool = False) -> Callable[[_Command], _Command]:
    """Return an option for a file to write."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, type=kind, metavar="FILE", help=help_text, required=required)


def rules_option(help_text: str) -> Callable[[_Command], _Command]:
    """Add ``--rules FILE``, repeatable: files with conversion functions."""
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    words = f"{help_text} Repeatable. Default: the run's own files."
    return click.option("--rules", multiple=True, type=kind, metavar="FILE", help=words)


def op_option(help_text: str) -> Callable[[_Command], _Command]:
    """Add ``--op NAME``, repeatable, which the function gets as `ops`."""
    return names_option("--op", "ops", f"{help_text} Repeatable.")


def timeout_option(default: float, help_text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--timeout S``, a positive number of seconds."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.option("--timeout", type=kind, default=default, show_default=True, metavar="S", help=help_text)


def operators_matching(patterns: Sequence[str], known: Sequence[str], where: str = "") -> list[str]:
    """Return the names in `known` that match a user's patterns; all names without a pattern.

    Args:
        patterns: Operators, overloads or globs.
        known: The names to choose from.
        where: The source of `known`, for the message.

    Raises:
        click.UsageError: a pattern matches nothing.
    """
    try:
        return sorted({name for p in patterns for name in match(p, known)}) if patterns else list(known)
    except UnknownOperator as error:
        raise click.UsageError(f"{where}: {error}" if where else str(error)) from None


def require_converters(names: Collection[str]) -> None:
    """Check that converters are known, can run here and make ONNX models.

    Raises:
        click.UsageError: one is not or does not; says how to get it.
    """
    from harness.convert.converter import find_converter
    from harness.run.artefact import ONNX

    _require("converter", names, lambda name: find_converter(name).probe())
    for name in names:
        if find_converter(name).makes != ONNX:
            raise click.UsageError(f"--converter {name} makes no ONNX model, which this command is about")


def require_writable(path: Path) -> None:
    """Check that a file can be written, before the work for it begins.

    Raises:
        click.UsageError: it cannot.
    """
    existed = path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
    if not existed:
        path.unlink()


def require_backends(names: Collection[str]) -> None:
    """Check that backends are known, can run here and take ONNX models.

    Raises:
        click.UsageError: one is not or does not; says how to get it.
    """
    from harness.run.artefact import ONNX
    from harness.run.backend import BACKENDS

    def probe(name: str) -> Unavailable | None:
        entry, argument = BACKENDS.find(name)
        return entry.probe(argument)

    _require("backend", names, probe)
    for name in names:
        if ONNX not in BACKENDS.find(name)[0].takes:
            raise click.UsageError(f"--backend {name} takes no ONNX model, which this command is about")


def _require(kind: str, names: Iterable[str], probe: Callable[[str], Unavailable | None]) -> None:
    for name in names:
        try:
            problem = probe(name)
        except UnknownName as error:
            raise click.UsageError(str(error)) from None
        if problem:
            raise click.UsageError(f"--{kind} {name}: {problem.reason}; to get it: {problem.install}")
