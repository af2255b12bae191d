"""Raises when it runs on the guilty value."""

from __future__ import annotations

from planted import _guilty


def _crime() -> None:
    raise RuntimeError("planted: no such kernel for 13")


prepare = _guilty.at_run(_crime)
