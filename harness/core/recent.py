"""What was made last, kept for whoever asks for the same next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """A mapping that forgets what has not been asked for the longest.

    Args:
        most: The sum of sizes that it holds.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._size = 0

    def get(self, key: _K) -> _V | None:
        """The value of a key; None where there is none any more."""
        if key not in self._held:
            return None
        self._held.move_to_end(key)
        return self._held[key][0]

    def keep(self, key: _K, value: _V, size: int = 1) -> None:
        """Hold a value, and forget others until there is room for it."""
        self._size += size - self._held.pop(key, (value, 0))[1]
        self._held[key] = value, size
        while self._size > self._most and len(self._held) > 1:
            _, (_, freed) = self._held.popitem(last=False)
            self._size -= freed
