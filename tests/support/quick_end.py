"""The end of a forked process, without taking down what is in memory.

That takes half a second where PyTorch and its exporters are: what a process shares with the one that it was
forked from is copied to be freed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn


def run_to_the_end(program: Callable[[], object]) -> NoReturn:
    """Run `program`, and end this process as Python does, its modules left as they are.

    Raises:
        BaseException: what `program` raises that Python shows when it ends; its end takes as long as ever.
    """
    status = 0
    try:
        program()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Nobody may read it any more.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)
