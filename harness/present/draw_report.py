"""How well the draws cover each operator's arguments, as `--generator-report` prints it.

How many of the pairs of conditions that operators' calls can have are drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.core.documents import count, plain
from harness.coverage.exceptions import Excuse
from harness.coverage.pair_survey import TIMES, PairShare, PairSurvey
from harness.coverage.survey import ACCEPTED, Survey


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
    used |= {place for survey in surveys if survey.pairs for _, place in survey.pairs.excused}
    for place, excuse in enumerate(excuses):
        if whole and place not in used:
            names = f"{', '.join(excuse.overloads)}: {', '.join((*excuse.points, *excuse.pairs))}"
            yield Text(f"An exception in cases/unreachable.toml is not needed: {names}", style="yellow")


#: Operators, and kinds of pairs, that are named.
_NAMED = 10


def pair_tables(surveys: Sequence[Survey]) -> Iterator[RenderableType]:
    """A row per operator, totals, the worst operators and the most frequent kinds of pairs not drawn."""
    found = {survey.overload: survey.pairs for survey in surveys if survey.pairs is not None}
    if not found:
        return
    yield _pairs_by_operator(found)
    yield from _totals(found)
    yield from _worst(found)
    undrawn = Counter[str]()
    for one in found.values():
        undrawn.update(one.undrawn)
    if undrawn:
        named = ", ".join(f"{kind} {pairs}" for kind, pairs in undrawn.most_common(_NAMED))
        yield Text(f"Structural pairs not drawn, most frequent first: {named}")


def _pairs_by_operator(found: dict[str, PairSurvey]) -> Table:
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title="Pairs of conditions: drawn of those that some call has which PyTorch takes",
        title_justify="left",
    )
    table.add_column("operator", no_wrap=True)
    for name in ("structures", "structural", f"×{TIMES}", "with values", f"×{TIMES}"):
        table.add_column(name, justify="right", no_wrap=True)
    for overload, one in found.items():
        shares = (_cells(one.structural), _cells(one.with_values))
        table.add_row(overload, str(one.structures), *(cell for share in shares for cell in share))
    return table


def _cells(share: PairShare) -> tuple[str, str]:
    if not share.reachable:
        return "–", "–"
    at_ten = "–" if share.drawn_at_ten is None else f"{share.drawn_at_ten / share.reachable:.0%}"
    return f"{share.drawn}/{share.reachable} {share.drawn / share.reachable:4.0%}", at_ten


def _totals(found: dict[str, PairSurvey]) -> Iterator[Text]:
    for name, shares in (
        ("structural pairs", [one.structural for one in found.values()]),
        ("pairs with values", [one.with_values for one in found.values()]),
    ):
        reachable = sum(share.reachable for share in shares)
        if not reachable:
            continue
        drawn = sum(share.drawn for share in shares)
        message = f"{drawn / reachable:.1%} of {reachable:,} {name} are drawn in the default budget"
        if all(share.drawn_at_ten is not None for share in shares):
            at_ten = sum(share.drawn_at_ten or 0 for share in shares)
            message += f", {at_ten / reachable:.1%} in {TIMES} times as much"
        each = [share.drawn / share.reachable for share in shares if share.reachable]
        yield Text(f"{message}; the mean of {count(len(each), 'operator')} is {sum(each) / len(each):.1%}")


def _worst(found: dict[str, PairSurvey]) -> Iterator[Text]:
    shares = {
        overload: one.structural.drawn / one.structural.reachable
        for overload, one in found.items()
        if one.structural.reachable
    }
    named = sorted(shares, key=lambda overload: (shares[overload], overload))[:_NAMED]
    if len(shares) > 1:
        message = ", ".join(f"{overload} {shares[overload]:.0%}" for overload in named)
        yield Text(f"Fewest structural pairs drawn: {message}")
    for overload in named[:1]:
        if found[overload].examples:
            yield Text(f"  {overload} lacks {'; '.join(found[overload].examples)}")
