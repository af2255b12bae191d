"""The witnesses, one per file; `harness.blame.witness` is the protocol."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.blame.witness import FACTORIES, Witness
from harness.execute import Settings


@cache
def of(settings: Settings) -> tuple[Witness, ...]:
    """The witnesses of a run with `settings`."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(witness for factory in FACTORIES for witness in factory(settings))
