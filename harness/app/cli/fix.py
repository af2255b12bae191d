"""`conformance fix`: a small change of a converter that repairs a group of failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from harness.app.cli._shared import (
    emit,
    example,
    file_option,
    json_option,
    line,
    print_json,
    run_option,
    statuses,
    timeout_option,
)
from harness.core import count, listed

if TYPE_CHECKING:
    from harness.analyse import FailingGroup, FixFound

#: How many more cases than the run drew are drawn to check a change.
_TIMES = 10
#: Exit status where a change repairs some of the cases.
_PARTIAL = 3


@click.command(
    epilog=example(
        "conformance fix 82129e6a",
        "conformance fix 3 --run results/RUN --write fix.patch",
        "conformance fix 82129e6a --seconds 600 --examples 5000",
    )
    + statuses("0 if a change was found; 1 if none was; 3 if one was that repairs some of the cases")
)
@click.argument("target", metavar="GROUP|CASE")
@run_option
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    help="Cases to draw of each operator to check a change.  [default: ten times as many as the run drew]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Processor time for the search, without the check of what it finds.",
)
@timeout_option(60.0, "Seconds for one step of a case, and for one change.")
@file_option("--write", "Write the difference to FILE, for `patch -p1` in the folder of the package.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    run: Path,
    examples: int | None,
    seconds: float,
    timeout: float,
    write: Path | None,
    as_json: bool,
) -> None:
    """Search for a small change of a converter that repairs a failure.

    GROUP is the number of an entry of `conformance failures`. CASE is the id of a case, or its beginning: it
    stands for the failures of its operator that look like its own.

    The lines that the failures come of are changed by rules: cast back to the promised dtype, read the
    ignored argument, swap the operands, give another attribute, keep NaN, take a float64 constant; up to
    three changes of a function at once. A change is kept only if every failing case passes with it, and if
    nothing fails that passed among many newly drawn cases of the operators. A case that the backend has no
    kernel for passes if it does in ONNX's reference evaluator. Where no change repairs every case, the one
    that repairs most is shown, under the same rule for what passed. The installed files stay as they are.

    With --json: run, target, overloads, converter, backend, total, failing, repaired, evaluated, passing,
    tried, refuted, rule, function, file, line, diff. The last five are null where no change was found.
    """
    # PyTorch takes seconds to import.
    from harness.analyse import CannotFix, FixLimits, failing_group, find_fix

    try:
        group = failing_group(run, target)
    except CannotFix as error:
        raise click.UsageError(str(error)) from None
    limits = FixLimits(seconds=seconds, examples=examples or _TIMES * group.examples)
    with Console(stderr=True).status("starting") as status:
        found = find_fix(group, limits, timeout=timeout, progress=status.update)
    data = _data(run, target, group, found)
    if write is not None and data["diff"]:
        write.write_text(data["diff"], encoding="utf-8")
    if as_json:
        print_json(data)
    else:
        _print(group, found, data, write)
    ctx.exit(_status(found))


def _status(found: FixFound) -> int:
    if found.complete:
        return 0
    return 1 if found.edit is None else _PARTIAL


def _data(run: Path, target: str, group: FailingGroup, found: FixFound) -> dict[str, Any]:
    from harness.analyse import SourceCode, edit_difference, short_path

    edit = found.edit
    return {
        "run": str(run),
        "target": target,
        "overloads": list(group.overloads),
        "converter": group.converter,
        "backend": group.backend,
        "total": group.total,
        "failing": found.failing,
        "repaired": found.repaired,
        "evaluated": found.evaluated,
        "passing": found.passing,
        "tried": found.tried,
        "refuted": found.refuted,
        "rule": edit.rule if edit else None,
        "function": edit.statement.function if edit else None,
        "file": short_path(edit.statement.file) if edit else None,
        "line": edit.statement.line if edit else None,
        "diff": edit_difference(edit, SourceCode()) if edit else None,
    }


def _print(group: FailingGroup, found: FixFound, data: dict[str, Any], write: Path | None) -> None:
    emit(
        Text(f"{listed(group.overloads, 4)}, {group.converter} → {group.backend}", style="bold"),
        Text(f"{count(group.total, 'case')} of the run fail like this; {found.failing:,} of them were run."),
    )
    if found.edit is None:
        emit(Text(_why_none(found)))
        return
    emit(
        _found(found, data["rule"]),
        Text(f"It is in {data['function']} ({data['file']}:{data['line']})."),
        *_with_it(group, found),
        Text(f"{count(found.passing, 'drawn case')} passed before, and all of them still pass."),
        Text(),
        *map(line, data["diff"].splitlines()),
    )
    if write is not None:
        emit(Text(), line(f"written to {write}"))


def _found(found: FixFound, rule: str) -> Text:
    if found.complete:
        return Text(f"A change was found: {rule}.", style="bold green")
    return Text(f"A change was found that repairs some of them: {rule}.", style="bold yellow")


def _with_it(group: FailingGroup, found: FixFound) -> Iterator[Text]:
    if found.complete:
        yield Text(f"With it all {found.failing:,} failing cases pass.")
    else:
        yield Text(
            f"With it {found.repaired:,} of {count(found.failing, 'failing case')} pass; "
            f"no change that was tried repairs them all."
        )
    if found.evaluated:
        yield Text(
            f"{found.evaluated:,} of these pass in ONNX's reference evaluator: {group.backend} has no kernel "
            f"for what they are now."
        )


def _why_none(found: FixFound) -> str:
    if not found.failing:
        return "None of them fails here, so there is nothing to repair."
    if not found.statements:
        return "No line of the converter can be named, so nothing was changed."
    if not found.refuted:
        return f"{count(found.tried, 'change')} were tried. With none of them the first cases pass."
    return (
        f"{count(found.tried, 'change')} were tried. With {found.refuted} of them the first cases pass, but "
        "others fail."
    )
