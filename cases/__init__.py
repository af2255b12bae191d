"""What the schemas of ATen operators cannot say: one file per family, each adding to one registry."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.generate.operator_case import REGISTRY, OperatorCase


class CaseFileError(Exception):
    """A family file that cannot be loaded; the message is one line that names it."""


@cache
def load() -> dict[str, OperatorCase]:
    """Import every family; overload → operator case, sorted by overload.

    Raises:
        CaseFileError: a family file is wrong: an operator declared twice, an unknown name.
    """
    for module in pkgutil.iter_modules(__path__):
        try:
            importlib.import_module(f"{__name__}.{module.name}")
        except Exception as error:
            raise CaseFileError(f"cases/{module.name}.py: {type(error).__name__}: {error}") from error
    return dict(sorted(REGISTRY.items()))
