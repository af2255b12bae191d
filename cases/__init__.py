"""What the schemas of ATen operators cannot say: one file per family, each adding to one registry."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.generate.operator_case import REGISTRY, OperatorCase


@cache
def load() -> dict[str, OperatorCase]:
    """Import every family; overload → operator case, sorted by overload."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(REGISTRY.items()))
