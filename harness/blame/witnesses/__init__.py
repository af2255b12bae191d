"""The witnesses, one per file; `harness.blame.witness` defines them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.blame.witness import FACTORIES, Witness
from harness.pipeline.task import Settings


def import_witnesses() -> None:
    """Import all of them, and start none."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)


@cache
def witnesses_of(settings: Settings) -> tuple[Witness, ...]:
    """Return the witnesses of a run with `settings`, in the order in which they are asked within their turns."""
    import_witnesses()
    found = [one for factory in FACTORIES for one in factory(settings)]
    return tuple(sorted(found, key=lambda one: one.place))
