"""What `pytest harness --coverage --op NAME` says: what a run has tried, condition by condition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from harness.analyse.seen_pairs import Tried, TriedPairs, read_tried_pairs
from harness.core import UnknownOperator, match
from harness.record import ResultsError, layout, newest, store

_COLUMNS = (
    (Tried.PASSED, "passing"),
    (Tried.SOME_FAIL, "some fail"),
    (Tried.NONE_PASSES, "none passes"),
    (Tried.FAILED_BEFORE, "fail before"),
    (Tried.NOT_DRAWN, "not drawn"),
)
#: Conditions without which a condition was drawn that are named.
_NAMED = 4


def tried_report(words: Sequence[str], run: Path | None) -> tuple[str, int]:
    """The text, and the exit status: 4 where there is no such run, or nothing of these operators in it.

    Args:
        words: Operators as a user writes them.
        run: By default the newest in ``results/``.
    """
    chosen = run if run is not None else newest(Path(layout.DEFAULT_PARENT))
    if chosen is None:
        return "there is no run in results/ that has tried anything; name one with --results-dir DIR", 4
    try:
        known = sorted(set(store.read(chosen, ["overload"])["overload"].to_pylist()))
        names = sorted({name for word in words for name in _named(word, known)})
        found = read_tried_pairs(chosen, names)
    except ResultsError as error:
        return str(error), 4
    if not found:
        return f"{chosen} has no case of {', '.join(words)}", 4
    return "\n\n".join("\n".join(_of_operator(name, found[name])) for name in names if name in found), 0


def _named(word: str, known: Sequence[str]) -> list[str]:
    try:
        return match(word, known)
    except UnknownOperator:
        return []


def _of_operator(name: str, pairs: TriedPairs) -> Collection[str]:
    share = pairs.seen
    if not share.possible:
        return [f"{name}: its cases differ in nothing but values"]
    width = max(map(len, pairs.names))
    lines = [
        f"{name}: {share} of conditions compared, {share.seen:,} of {share.possible:,}; of each with others:",
        f"  {'':<{width}}" + "".join(f"{title:>13}" for _, title in _COLUMNS),
    ]
    either = np.maximum(pairs.tried, pairs.tried.T)
    for place, condition in enumerate(pairs.names):
        counts = "".join(f"{int((either[place] == state).sum()) or '':>13}" for state, _ in _COLUMNS)
        lacking = [pairs.names[i] for i in np.flatnonzero(either[place] == Tried.NOT_DRAWN).tolist()]
        more = f", {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        said = f"  {', '.join(lacking[:_NAMED])}{more}" if lacking else ""
        lines.append(f"  {condition:<{width}}{counts}{said}")
    return lines
