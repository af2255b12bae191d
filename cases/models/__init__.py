"""Real architectures, scaled down: one file per family, each adding to one registry; nothing is downloaded.

Widths and depths are a fraction of the original's, so that a forward pass takes milliseconds; every kind of
layer of the original is there.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.models.entry import REGISTRY, ModelEntry


@cache
def load() -> dict[str, ModelEntry]:
    """Import every family; name → model, sorted by name."""
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(REGISTRY.items()))
