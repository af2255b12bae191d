"""The stream of choices behind Hypothesis's strategies, the same on every machine.

Hypothesis's own backend mixes constants that it finds in the source files of loaded local modules into
integers and floats, so that one seed draws other values where other modules are loaded: under
pytest-xdist, in a notebook, beside a user's own tests. Its documented interface for alternative backends
lets the choices come from one seeded stream instead. Shrinking stays Hypothesis's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

NAME = "harness-stable"

_stream: ContextVar[Random] = ContextVar("stream")


@contextmanager
def stream(seed: str) -> Iterator[None]:
    """Within it, strategies draw from the stream that `seed` names."""
    # Seeding by text goes through SHA-512, which Python keeps (`random.seed`, version 2).
    token = _stream.set(Random(seed))
    try:
        yield
    finally:
        _stream.reset(token)


class StableProvider(PrimitiveProvider):
    """Uniform choices from the current stream.

    Only `Random.getrandbits` and `Random.random` are used, whose values Python's documentation
    promises to keep.
    """

    lifetime = "test_case"

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability `p`."""
        return _stream.get().random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: Mapping[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """Uniform in the range; an open end reaches 2³² beyond the other."""
        low = min_value if min_value is not None else (max_value or 0) - 2**32
        high = max_value if max_value is not None else low + 2**33
        return low + _stream.get().getrandbits(64) % (high - low + 1)

    def draw_float(
        self,
        *,
        min_value: float = -float("inf"),
        max_value: float = float("inf"),
        allow_nan: bool = True,
        smallest_nonzero_magnitude: float = 0.0,
    ) -> float:
        """Uniform in the range, cut to ±1e9."""
        low, high = max(min_value, -1e9), min(max_value, 1e9)
        return low + _stream.get().random() * (high - low)

    def draw_string(self, intervals: Any, *, min_size: int = 0, max_size: int = 10**10) -> str:
        """At most eight characters more than the least."""
        size = self.draw_integer(min_size, min(max_size, min_size + 8))
        return "".join(chr(intervals[self.draw_integer(0, len(intervals) - 1)]) for _ in range(size))

    def draw_bytes(self, min_size: int = 0, max_size: int = 10**10) -> bytes:
        """At most eight bytes more than the least."""
        size = self.draw_integer(min_size, min(max_size, min_size + 8))
        return bytes(_stream.get().getrandbits(8) for _ in range(size))


AVAILABLE_PROVIDERS[NAME] = StableProvider
