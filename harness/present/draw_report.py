"""The coverage of each operator's arguments by draws, as `--generator-report` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.core.text import count, plain
from harness.coverage.exceptions import Excuse
from harness.coverage.survey import ACCEPTED, Survey


def render(surveys: Sequence[Survey], excuses: Sequence[Excuse], *, whole: bool) -> Iterator[RenderableType]:
    """Render a row per operator, totals per group of points, and the defects.

    Args:
        excuses: The exceptions that were applied.
        whole: Whether every operator was surveyed, so that an exception of no use shows.
    """
    ordered = sorted(surveys, key=lambda s: s.overload)
    yield _operators(ordered)
    yield _groups(ordered)
    yield from _defects(ordered)
    yield from _stale(ordered, excuses, whole)


def _operators(surveys: Sequence[Survey]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for name in ("draws", "taken", "structures", "points", "missed", "excused"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ranks 0–5", no_wrap=True)
    for survey in surveys:
        reached = sum(map(len, survey.hit.values()))
        table.add_row(
            survey.overload,
            str(survey.draws),
            f"{survey.accepted / max(survey.asked, 1):.1%}",
            str(survey.structures),
            f"{reached}/{reached + len(survey.missed)}",
            str(len(survey.missed) or ""),
            str(len(survey.excused) or ""),
            " ".join(str(survey.ranks.get(rank, 0)) for rank in range(6)),
            style="red" if survey.defects else "",
        )
    return table


def _groups(surveys: Sequence[Survey]) -> Table:
    hit, missed, operators = Counter[str](), Counter[str](), Counter[str]()
    for survey in surveys:
        for group, points in survey.hit.items():
            hit[group] += len(points)
        missed.update(miss.group for miss in survey.missed)
        operators.update({*survey.hit, *(miss.group for miss in survey.missed)})
    table = Table(box=None, pad_edge=False, header_style="bold", title="Points by group", title_justify="left")
    table.add_column("group", no_wrap=True)
    for name in ("operators", "reached", "missed"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in sorted(operators):
        table.add_row(group, str(operators[group]), str(hit[group]), str(missed[group] or ""))
    return table


def _defects(surveys: Sequence[Survey]) -> Iterator[Text]:
    defective = [survey for survey in surveys if survey.defects]
    taken = sum(survey.accepted for survey in surveys) / max(sum(survey.asked for survey in surveys), 1)
    enough = sum(survey.accepted >= ACCEPTED * survey.asked for survey in surveys)
    yield Text(
        f"PyTorch accepts {taken:.2%} of the draws, and at least {ACCEPTED:.0%} for {enough} of "
        f"{count(len(surveys), 'operator')}; {len(surveys) - len(defective)} have no defect"
    )
    if defective:
        yield Text("Defective operator cases", style="bold red")
    for one in defective:
        for line in one.defects:
            yield Text(f"  {one.overload}: {plain(line, 240)}")


def _stale(surveys: Sequence[Survey], excuses: Sequence[Excuse], whole: bool) -> Iterator[Text]:
    used = {place for survey in surveys for _, place in survey.excused}
    for place, excuse in enumerate(excuses):
        if whole and place not in used:
            names = f"{', '.join(excuse.overloads)}: {', '.join(excuse.points)}"
            yield Text(f"An exception in cases/unreachable.toml is not needed: {names}", style="yellow")
