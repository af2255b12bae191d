"""Between which two releases a verdict changed: a binary search over verdicts, some of them missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdicts:
    """What became of a case with one release.

    Attributes:
        said: The outcome and where, per converter and backend, as one line; "" where there is none.
        missing: Why there is no verdict, as one line; "" where there is one.
    """

    said: str
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The result of a search.

    Attributes:
        tried: Release → verdicts, oldest first.
        before: The last release with the verdicts of the oldest one that has any; "" where none differs.
        after: The first release known to have other ones; "" where none differs.
        between: Releases between the two that have no verdicts, so that the change may be in each of them.
    """

    tried: dict[str, Verdicts]
    before: str = ""
    after: str = ""
    between: tuple[str, ...] = ()


def search_releases(releases: Sequence[str], ask: Callable[[str], Verdicts]) -> Change:
    """Find where verdicts change, which they are taken to do once.

    Releases without a verdict are passed over, as `git bisect skip` does.

    Args:
        releases: Oldest first.
        ask: Gives the verdicts of one; is asked once of each, and of few.
    """
    tried: dict[str, Verdicts] = {}

    def verdicts(place: int) -> Verdicts:
        release = releases[place]
        if release not in tried:
            tried[release] = ask(release)
        return tried[release]

    def found(change: tuple[int, int] | None = None) -> Change:
        in_order = {release: tried[release] for release in releases if release in tried}
        if change is None:
            return Change(tried=in_order)
        low, high = change
        between = tuple(r for r in releases[low + 1 : high] if r in tried)
        return Change(tried=in_order, before=releases[low], after=releases[high], between=between)

    places = range(len(releases))
    low = next((place for place in places if not verdicts(place).missing), None)
    high = next((place for place in reversed(places) if not verdicts(place).missing), None)
    if low is None or high is None or verdicts(low).said == verdicts(high).said:
        return found()
    while True:
        # The middle first, then what is nearest to it.
        ends = low + high
        inner = sorted(range(low + 1, high), key=lambda place, ends=ends: abs(2 * place - ends))  # type: ignore[misc]
        middle = next((place for place in inner if not verdicts(place).missing), None)
        if middle is None:
            return found((low, high))
        if verdicts(middle).said == verdicts(low).said:
            low = middle
        else:
            high = middle
