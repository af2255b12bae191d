"""How many of the pairs of conditions that operators' calls can have are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.analyse import TIMES, PairShare, PairSurvey, Survey
from harness.core import count

#: Operators, and kinds of pairs, that are named.
_NAMED = 10


def pair_tables(surveys: Sequence[Survey]) -> Iterator[RenderableType]:
    """A row per operator, totals, the worst operators and the most frequent kinds of pairs not drawn."""
    found = {one.overload: one.pairs for one in surveys if one.pairs is not None}
    if not found:
        return
    yield _operators(found)
    yield from _totals(found)
    yield from _worst(found)
    undrawn = Counter[str]()
    for one in found.values():
        undrawn.update(one.undrawn)
    if undrawn:
        named = ", ".join(f"{kind} {pairs}" for kind, pairs in undrawn.most_common(_NAMED))
        yield Text(f"Structural pairs not drawn, most frequent first: {named}")


def _operators(found: dict[str, PairSurvey]) -> Table:
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
        said = f"{drawn / reachable:.1%} of {reachable:,} {name} are drawn in the default budget"
        if all(share.drawn_at_ten is not None for share in shares):
            at_ten = sum(share.drawn_at_ten or 0 for share in shares)
            said += f", {at_ten / reachable:.1%} in {TIMES} times as much"
        each = [share.drawn / share.reachable for share in shares if share.reachable]
        yield Text(f"{said}; the mean of {count(len(each), 'operator')} is {sum(each) / len(each):.1%}")


def _worst(found: dict[str, PairSurvey]) -> Iterator[Text]:
    shares = {
        overload: one.structural.drawn / one.structural.reachable
        for overload, one in found.items()
        if one.structural.reachable
    }
    named = sorted(shares, key=lambda overload: (shares[overload], overload))[:_NAMED]
    if len(shares) > 1:
        said = ", ".join(f"{overload} {shares[overload]:.0%}" for overload in named)
        yield Text(f"Fewest structural pairs drawn: {said}")
    for overload in named[:1]:
        if found[overload].examples:
            yield Text(f"  {overload} lacks {'; '.join(found[overload].examples)}")
