"""How well the draws cover each operator's arguments, as `--generator-report` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.analyse import ACCEPTED, Excuse, Survey
from harness.core import count, plain
from harness.present.pair_report import pair_tables


def render(surveys: Sequence[Survey], excuses: Sequence[Excuse], *, whole: bool) -> Iterator[RenderableType]:
    """A row per operator, totals per group of points, and the defects.

    Args:
        excuses: The exceptions that were applied.
        whole: Whether every operator was surveyed, so that an exception of no use shows.
    """
    ordered = sorted(surveys, key=lambda s: s.overload)
    yield _operators(ordered)
    yield _groups(ordered)
    yield from pair_tables(ordered)
    yield from _defects(ordered)
    yield from _stale(ordered, excuses, whole)


def _operators(surveys: Sequence[Survey]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for name in ("draws", "taken", "structures", "points", "missed", "excused"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ranks 0–5", no_wrap=True)
    for one in surveys:
        reached = sum(map(len, one.hit.values()))
        table.add_row(
            one.overload,
            str(one.draws),
            f"{one.accepted / max(one.asked, 1):.1%}",
            str(one.structures),
            f"{reached}/{reached + len(one.missed)}",
            str(len(one.missed) or ""),
            str(len(one.excused) or ""),
            " ".join(str(one.ranks.get(rank, 0)) for rank in range(6)),
            style="red" if one.defects else "",
        )
    return table


def _groups(surveys: Sequence[Survey]) -> Table:
    hit, missed, operators = Counter[str](), Counter[str](), Counter[str]()
    for one in surveys:
        for group, points in one.hit.items():
            hit[group] += len(points)
        missed.update(miss.group for miss in one.missed)
        operators.update({*one.hit, *(miss.group for miss in one.missed)})
    table = Table(box=None, pad_edge=False, header_style="bold", title="Points by group", title_justify="left")
    table.add_column("group", no_wrap=True)
    for name in ("operators", "reached", "missed"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in sorted(operators):
        table.add_row(group, str(operators[group]), str(hit[group]), str(missed[group] or ""))
    return table


def _defects(surveys: Sequence[Survey]) -> Iterator[Text]:
    defective = [one for one in surveys if one.defects]
    taken = sum(one.accepted for one in surveys) / max(sum(one.asked for one in surveys), 1)
    enough = sum(one.accepted >= ACCEPTED * one.asked for one in surveys)
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
    used = {place for one in surveys for _, place in one.excused}
    used |= {place for one in surveys if one.pairs for _, place in one.pairs.excused}
    for place, excuse in enumerate(excuses):
        if whole and place not in used:
            names = f"{', '.join(excuse.overloads)}: {', '.join((*excuse.points, *excuse.pairs))}"
            yield Text(f"An exception in cases/unreachable.toml is not needed: {names}", style="yellow")
