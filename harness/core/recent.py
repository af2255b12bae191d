"""A least-recently-used cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """A mapping that drops its least recently used values.

    Args:
        most: The largest sum of the sizes of its values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._size = 0

    def get(self, key: _K) -> _V | None:
        """Return the value of a key; None if it was dropped or never kept."""
        if key not in self._held:
            return None
        self._held.move_to_end(key)
        return self._held[key][0]

    def keep(self, key: _K, value: _V, size: int = 1) -> None:
        """Keep a value, and drop others until it fits."""
        self._size += size - self._held.pop(key, (value, 0))[1]
        self._held[key] = value, size
        while self._size > self._most and len(self._held) > 1:
            _, (_, freed) = self._held.popitem(last=False)
            self._size -= freed
