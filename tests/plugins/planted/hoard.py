"""Takes memory, a bit at a time and for good, when it runs on the guilty value."""

from __future__ import annotations

import time

import numpy as np

from planted import _guilty


def _crime() -> None:
    hoard = []
    # Bounded, so that a harness without a limit fails its test rather than the machine.
    for _ in range(24):
        hoard.append(np.ones(2**24))
        time.sleep(0.02)
    time.sleep(600)


prepare = _guilty.at_run(_crime)
