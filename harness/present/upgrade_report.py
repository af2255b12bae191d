"""What an upgrade changed: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.documents import count, markdown_cell, plain
from harness.gate.after_upgrade import Goldens
from harness.gate.diff_inputs import BaselineComparison
from harness.gate.golden.golden_check import CheckedGolden, GoldenChange
from harness.gate.golden.store import Ending
from harness.present import gate_report as gate


@dataclass(frozen=True, kw_only=True)
class Account:
    """What an upgrade changed.

    Attributes:
        goldens: None where there are none.
        sweep: The baseline's cases with what is installed now.
    """

    goldens: Goldens | None
    sweep: BaselineComparison

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        """Name → (before, now) of what differs, for the goldens or the baseline."""
        return {**(self.goldens.versions if self.goldens else {}), **self.sweep.versions}

    @property
    def worse(self) -> int:
        """How many findings say that something is worse."""
        found = self.sweep.worse
        return found + (len(self.goldens.wrong) + len(self.goldens.failing) if self.goldens else 0)


def render(account: Account, limit: int = 20) -> RenderableType:
    """The account for a terminal, with at most `limit` lines of each kind."""
    return Group(*_parts(account, limit))


def _parts(account: Account, limit: int) -> Iterator[RenderableType]:
    yield Text("Versions", style="bold")
    for name, (before, now) in account.versions.items():
        yield Text(f"  {plain(name)}: {plain(before) or 'absent'} → {plain(now) or 'absent'}")
    if not account.versions:
        yield Text("  the same as before")
    if account.goldens is None:
        yield Text("No goldens; `conformance golden record` makes them", style="bold")
    else:
        yield from _goldens(account.goldens, limit)
    yield gate.render(account.sweep, "The cases of the baseline", limit=limit, versions=False)
    if account.worse:
        yield Text(f"{count(account.worse, 'finding')} worse than before", style="bold red")
    else:
        yield Text("Nothing is worse than before", style="bold green")


def _goldens(goldens: Goldens, limit: int) -> Iterator[Text]:
    yield Text(f"PyTorch: {pytorch(goldens)}", style="bold")
    yield from _limited(
        [f"{d.golden.name}: {d.what}{'' if d.is_wrong else ' (still right)'}" for d in _moved(goldens)], limit
    )
    for backend in goldens.backends:
        yield Text(f"{backend}: {models(goldens, backend)}", style="bold")
        some = [one for one in goldens.checked if one.backend == backend]
        yield from _limited([in_words(one) for one in some if one.change in _CHANGED], limit)
    for name in goldens.left_out:
        yield Text(f"{plain(name)} cannot run here, so its goldens were left out", style="yellow")


_CHANGED = (GoldenChange.NEW, GoldenChange.OTHER, GoldenChange.FIXED)


def _moved(goldens: Goldens) -> list[Any]:
    return sorted(goldens.moved, key=lambda d: (not d.is_wrong, -(d.max_ulp or 0.0)))


def pytorch(goldens: Goldens) -> str:
    """``12 goldens: 11 the same to the bit, 1 moved, 0 wrong``."""
    moved, wrong = len(goldens.moved), len(goldens.wrong)
    return (
        f"{count(goldens.count, 'golden')}: {goldens.count - moved} the same to the bit, "
        f"{moved - wrong} moved, {wrong} wrong"
    )


def models(goldens: Goldens, backend: str) -> str:
    """``20 golden models: 18 pass, 1 fails as recorded, …``."""
    counts: Mapping[GoldenChange, int] = goldens.counts(backend)
    return (
        f"{count(sum(counts.values()), 'golden model')}: {counts[GoldenChange.PASS]} pass, "
        f"{counts[GoldenChange.KNOWN]} as recorded, {counts[GoldenChange.FIXED]} pass now, "
        f"{counts[GoldenChange.NEW]} newly failing, {counts[GoldenChange.OTHER]} end in another way"
    )


def in_words(one: CheckedGolden) -> str:
    """One golden's model on one backend."""
    before = "not recorded" if one.recorded is None else _ending(one.recorded)
    return f"{one.golden.name}, {one.converter}: {before} → {_ending(one.now)}"


def _ending(ending: Ending) -> str:
    return f"{ending.outcome} at {ending.stage}" + (f" ({ending.signature})" if ending.signature else "")


def _limited(lines: list[str], limit: int) -> Iterator[Text]:
    for words in lines[:limit]:
        yield Text(f"  {plain(words, 300)}")
    if len(lines) > limit:
        yield Text(f"  and {len(lines) - limit} more")


def markdown(account: Account) -> str:
    """The account for a pull request."""
    lines = []
    goldens = account.goldens
    if goldens is not None:
        lines += ["", "### Goldens", "", f"PyTorch: {pytorch(goldens)}."]
        lines += [f"{markdown_cell(name)}: {models(goldens, name)}." for name in goldens.backends]
        rows = [(d.golden.name, d.what) for d in _moved(goldens)]
        changed = [one for one in goldens.checked if one.change in _CHANGED]
        rows += [(f"{one.golden.name}, {one.backend}", in_words(one)) for one in changed]
        if rows:
            lines += ["", "| golden | what |", "| --- | --- |"]
            lines += [f"| {markdown_cell(name)} | {markdown_cell(what)} |" for name, what in rows[:50]]
    return gate.markdown(account.sweep, before="before", after="after the upgrade") + "\n".join(lines) + "\n"


def as_json(account: Account) -> dict[str, Any]:
    """The account as plain data: ``worse``, ``versions``, ``goldens``, ``baseline``."""
    goldens = account.goldens
    return {
        "worse": account.worse,
        "versions": {name: {"before": a, "after": b} for name, (a, b) in account.versions.items()},
        "goldens": goldens
        and {
            "count": goldens.count,
            "pytorch": [
                {"golden": d.golden.name, "wrong": d.is_wrong, "what": d.what, "max_ulp": d.max_ulp}
                for d in _moved(goldens)
            ],
            "backends": {
                name: {str(change): goldens.counts(name)[change] for change in GoldenChange}
                for name in goldens.backends
            },
            "differences": [
                {"golden": one.golden.name, "converter": one.converter, "backend": one.backend}
                | {"change": str(one.change), "what": in_words(one)}
                for one in goldens.checked
                if one.change in _CHANGED
            ],
            "left_out": list(goldens.left_out),
        },
        "baseline": gate.as_json(account.sweep),
    }
