"""Aborts, as a failed C++ assertion does, when it runs on the guilty value."""

from __future__ import annotations

import os

from planted import _guilty


def _crime() -> None:
    os.write(2, b"terminate called after throwing an instance of 'planted::Error'\n")
    os.abort()


prepare = _guilty.at_run(_crime)
