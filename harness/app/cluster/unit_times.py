"""How long units took in the last run in a dataset: the next one is balanced by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from harness.plan import usual_seconds
from harness.record import Location, ResultsError, reason

_FILE = "unit-times.json"
#: What times are given for.
USUAL_EXAMPLES = 128


def read_times(dataset: str | None) -> Callable[[str], float]:
    """Seconds that a unit takes with 128 cases; the usual ones of its operator where no run has measured it.

    Raises:
        ResultsError: the dataset cannot be read.
    """
    known: Mapping[str, float] = {}
    if dataset is not None:
        place = Location(dataset)
        if _FILE in place.files():
            try:
                known = {str(name): float(value) for name, value in json.loads(place.read(_FILE)).items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise ResultsError(f"{place.named(_FILE)} is damaged ({reason(error)}): delete it") from None
    return lambda name: known.get(name, usual_seconds(name.partition(" ")[0]))


def write_times(dataset: str, seconds: Mapping[str, float]) -> None:
    """Keep what a run has measured, for 128 cases of each unit."""
    times = {name: round(value, 3) for name, value in sorted(seconds.items())}
    Location(dataset).write(json.dumps(times, indent=0) + "\n", _FILE)
