"""``--minutes N``: operators that models call most come first, and operators that were not reached are named."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.causes.model_use import model_use
from harness.core.text import count
from harness.plan.options import UsageProblem
from harness.plan.unit import Unit
from harness.record import store

#: The property of an item's report that names its operator if it was not reached.
NOT_REACHED = "not reached"
#: Operators that a line names.
_NAMED = 5


def prepare(option: Any) -> None:
    """Note when the time is over, once: xdist's workers get the option as it is.

    Raises:
        UsageProblem: the number is not positive.
    """
    if option.minutes is None:
        return
    if not option.minutes > 0:
        raise UsageProblem(f"--minutes {option.minutes:g}: must be more than 0")
    if not hasattr(option, "minutes_end"):
        option.minutes_end = time.time() + 60.0 * option.minutes
    # Xdist would give each of its workers a quarter of its share at once, and so the last ones operators far behind.
    if getattr(option, "maxschedchunk", None) is None:
        option.maxschedchunk = 1


def sort_by_use(option: Any, items: list[pytest.Item]) -> None:
    """Put the operators that most models call first, if the time is limited."""
    if option.minutes is None:
        return
    use = model_use()
    items.sort(key=lambda item: -len(use.callers_of(_overload(item))))


def seconds_left(option: Any) -> float | None:
    """Return the seconds until the time is over; None without a limit."""
    return None if option.minutes is None else max(option.minutes_end - time.time(), 0.0)


def skip_late(item: pytest.Item) -> None:
    """Skip an item for which no time is left."""
    option = item.config.option
    if option.minutes is not None and time.time() > option.minutes_end and _overload(item):
        item.user_properties.append((NOT_REACHED, _overload(item)))
        pytest.skip(f"not reached within --minutes {option.minutes:g}")


def lines(option: Any, overloads: Sequence[str], results_dir: Path) -> list[str]:
    """Return the lines at the end of the session about operators of which no case was reached."""
    if option.minutes is None or not overloads:
        return []
    # An operator may be reached with one converter and not with another: the matrix has it.
    begun = set(store.read(results_dir, ["overload"], encoded=True)["overload"].unique().to_pylist())
    names = [name for name in dict.fromkeys(overloads) if name not in begun]
    if not names:
        return []
    use = model_use()
    called = sorted((name for name in names if use.callers_of(name)), key=lambda name: -len(use.callers_of(name)))
    line = f"not reached within --minutes {option.minutes:g}: {count(len(names), 'operator')}"
    if not called:
        return [f"{line}, which no model calls; without --minutes they are run, too"]
    more = f" and {len(called) - _NAMED} more" if len(called) > _NAMED else ""
    return [f"{line}; models call {len(called)} of them: {', '.join(called[:_NAMED])}{more}"]


def _overload(item: pytest.Item) -> str:
    """Return the operator of an item; "" for an item of another kind."""
    unit = item.callspec.params.get("unit") if hasattr(item, "callspec") else None
    return unit.overload if isinstance(unit, Unit) else ""
