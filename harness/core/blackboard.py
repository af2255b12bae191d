"""What a process says it is about to do, where it is found whatever becomes of the process."""

from __future__ import annotations

import mmap
import pickle
import struct
from pathlib import Path

_COUNT = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
#: Bytes that a value may take, pickled.
_ROOM = 4096


class Blackboard:
    """A plain value that one process writes for another in shared memory; the latest replaces the one before.

    It costs far less than a message, which wakes the process that waits for it. A pickled blackboard is the
    place of its memory: whoever reads it shares that.

    Args:
        path: A file that holds the memory; it is made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        size = _COUNT.size + 2 * (_LENGTH.size + _ROOM)
        with path.open("a+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)

    def __reduce__(self) -> tuple[type[Blackboard], tuple[Path]]:
        return Blackboard, (self._path,)

    @property
    def count(self) -> int:
        """How many values have been written since it was cleared."""
        return int(_COUNT.unpack_from(self._memory)[0])

    def clear(self) -> None:
        """Take the value away."""
        _COUNT.pack_into(self._memory, 0, 0)

    def write(self, value: object) -> None:
        """Put `value` in place of the one before; raises `ValueError` where it is too large."""
        data = pickle.dumps(value)
        if len(data) > _ROOM:
            raise ValueError(f"a message of {len(data)} bytes is longer than {_ROOM}")
        # The process may end at any moment: what was there stays whole until the new value is.
        count = self.count + 1
        place = self._place(count)
        _LENGTH.pack_into(self._memory, place, len(data))
        self._memory[place + _LENGTH.size : place + _LENGTH.size + len(data)] = data
        _COUNT.pack_into(self._memory, 0, count)

    def read(self) -> object:
        """The value that was written last; None for none."""
        if not self.count:
            return None
        place = self._place(self.count)
        (length,) = _LENGTH.unpack_from(self._memory, place)
        value: object = pickle.loads(self._memory[place + _LENGTH.size : place + _LENGTH.size + length])
        return value

    @staticmethod
    def _place(count: int) -> int:
        return _COUNT.size + count % 2 * (_LENGTH.size + _ROOM)
