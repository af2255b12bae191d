"""Parameters of a test, of which a sample is tried by default."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], *, every: int = 0, named: Container[Any] = (), slow: int = 1) -> list[Any]:
    """Return the parameters of a test that tries a sample of values by default; the others have a mark.

    Args:
        values: The values.
        every: The distance of values that are in the sample; 0 takes only those that are named.
        named: Values that are in the sample wherever they are.
        slow: The distance of values with the mark ``slow``; what is left has the mark ``thorough``.
    """

    def mark(place: int, value: Any) -> Any:
        if value in named or (every and place % every == 0):
            return ()
        return pytest.mark.slow if place % slow == 0 else pytest.mark.thorough

    return [pytest.param(value, marks=mark(place, value)) for place, value in enumerate(values)]
