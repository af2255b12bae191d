"""What an upgrade changed, as a report and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.documents import count
from harness.gate.after_upgrade import Goldens
from harness.gate.diff_inputs import BaselineComparison
from harness.gate.golden.check import CheckedGolden, GoldenChange
from harness.gate.golden.store import Ending
from harness.present import gate_report as gate
from harness.present.report import Note, Report, Row, Section


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
        return found + (len(self.goldens.failing) if self.goldens else 0)


def report(account: Account) -> Report:
    """The versions, the goldens, and the cases of the baseline."""
    sweep = gate.report(account.sweep, "", versions=False)
    compared = Section(title=f"The cases of the baseline: {sweep.before[0].text}")
    worse = Note(f"{count(account.worse, 'finding')} worse than before", "bold red")
    return Report(
        title="What the upgrade changed",
        before=() if account.versions else (Note("the versions are the same as before"),),
        differences={**account.versions, **sweep.differences},
        sections=(*_goldens(account.goldens), compared, *sweep.sections),
        after=(
            *sweep.before[1:],
            *sweep.after,
            worse if account.worse else Note("Nothing is worse than before", "bold green"),
        ),
    )


def _goldens(goldens: Goldens | None) -> Iterator[Section]:
    if goldens is None:
        yield Section(title="No goldens; `conformance golden record` makes them")
        return
    for backend in goldens.backends:
        changed = [one for one in goldens.checked if one.backend == backend and one.change in _CHANGED]
        rows = tuple(Row(", ".join(filter(None, (one.golden.name, one.converter))), in_words(one)) for one in changed)
        yield Section(title=f"{backend}: {models(goldens, backend)}", rows=rows, noun="golden")
    for name in goldens.left_out:
        yield Section(title=f"{name} cannot run here, so its goldens were left out", style="yellow")


_CHANGED = (GoldenChange.NEW, GoldenChange.OTHER, GoldenChange.FIXED)


def models(goldens: Goldens, backend: str) -> str:
    """``20 goldens: 18 pass, 1 fails as recorded, …``."""
    counts: Mapping[GoldenChange, int] = goldens.counts(backend)
    return (
        f"{count(sum(counts.values()), 'golden')}: {counts[GoldenChange.PASS]} pass, "
        f"{counts[GoldenChange.KNOWN]} as recorded, {counts[GoldenChange.FIXED]} pass now, "
        f"{counts[GoldenChange.NEW]} newly failing, {counts[GoldenChange.OTHER]} end in another way"
    )


def in_words(one: CheckedGolden) -> str:
    """How one golden's model ended before and how it ends now."""
    before = "not recorded" if one.recorded is None else _ending(one.recorded)
    return f"{before} → {_ending(one.now)}"


def _ending(ending: Ending) -> str:
    return f"{ending.outcome} at {ending.stage}" + (f" ({ending.signature})" if ending.signature else "")


def as_json(account: Account) -> dict[str, Any]:
    """The account as plain data: ``worse``, ``versions``, ``goldens``, ``baseline``."""
    goldens = account.goldens
    return {
        "worse": account.worse,
        "versions": {name: {"before": a, "after": b} for name, (a, b) in account.versions.items()},
        "goldens": goldens
        and {
            "count": goldens.count,
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
