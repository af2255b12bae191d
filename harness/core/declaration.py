"""Where something registers itself."""

from __future__ import annotations

import sys
from types import FrameType


def declaring_place() -> tuple[str, int]:
    """The file and line that run now at the outermost level of the module behind the call.

    ``("", 0)`` where no module does, as in a thread.
    What registers itself by a decorator or a call so knows the statement that did it, however many functions
    lie between.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0
