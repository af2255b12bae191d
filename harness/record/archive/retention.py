"""Which runs a dataset keeps: a run stays as long as any rule wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.record.run_info import RunInfo


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What to keep; None for no rule.

    Attributes:
        last: The newest runs, how many.
        days: Every run that is not older than so many days.
        weekly: The newest whole run of each of the last so many weeks (Monday to Sunday, UTC) that have one.
        monthly: Likewise of calendar months.
    """

    last: int | None = None
    days: float | None = None
    weekly: int | None = None
    monthly: int | None = None

    @property
    def given(self) -> bool:
        """Whether there is any rule."""
        return any(rule is not None for rule in (self.last, self.days, self.weekly, self.monthly))


def keeping(runs: Sequence[RunInfo], rules: Rules, now: datetime) -> dict[str, list[str]]:
    """Why each run is kept.

    The newest run always is: a dataset without one has nothing to compare the next with.

    Args:
        runs: In any order.
        rules: What to keep.
        now: With its time zone.

    Returns:
        Run id → reasons, newest run first; no reason for a run that is to be removed.
    """
    ordered = sorted(runs, key=lambda run: (run.started, run.run_id), reverse=True)
    reasons: dict[str, list[str]] = {run.run_id: [] for run in ordered}
    for run in ordered[: rules.last or 0]:
        reasons[run.run_id].append(f"of the last {rules.last}")
    if rules.days is not None:
        for run in ordered:
            if now - _began(run) <= timedelta(days=rules.days):
                reasons[run.run_id].append(f"not {rules.days:g} days old")
    for wanted, form, word in ((rules.weekly, "%G-W%V", "week"), (rules.monthly, "%Y-%m", "month")):
        best: dict[str, RunInfo] = {}
        # One that lost a shard stands for a period only where no other does.
        for run in sorted(ordered, key=lambda run: bool(run.unfinished)):
            best.setdefault(f"{_began(run):{form}}", run)
        for period in sorted(best, reverse=True)[: wanted or 0]:
            reasons[best[period].run_id].append(f"{word} {period}")
    if ordered and not reasons[ordered[0].run_id]:
        reasons[ordered[0].run_id].append("the newest")
    return reasons


def _began(run: RunInfo) -> datetime:
    return datetime.fromisoformat(run.started)
