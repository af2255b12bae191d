"""What the schemas of ATen operators cannot say: one file per family, each adding to one registry."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

from harness.generate.operator_case import REGISTRY, OperatorCase
from harness.generate.promotion import Promotion


class CaseFileError(Exception):
    """A family file that cannot be loaded; the message is one line that names it."""


#: Dtypes beyond those that the family files declare; `ci/further_dtypes.py` writes it.
FURTHER_DTYPES = Path(__file__).parent / "dtypes.toml"


@cache
def declared() -> dict[str, OperatorCase]:
    """Import every family; overload → operator case as declared, sorted by overload.

    Raises:
        CaseFileError: a family file is wrong: an operator declared twice, an unknown name.
    """
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            # Whole models have a registry of their own, and need PyTorch.
            continue
        try:
            importlib.import_module(f"{__name__}.{module.name}")
        except Exception as error:
            raise CaseFileError(f"cases/{module.name}.py: {type(error).__name__}: {error}") from error
    return dict(sorted(REGISTRY.items()))


@cache
def load() -> dict[str, OperatorCase]:
    """Every operator case, with the dtypes and promotions that PyTorch takes beyond the declared ones.

    Raises:
        CaseFileError: a family file is wrong.
    """
    declared()
    further = tomllib.loads(FURTHER_DTYPES.read_text())
    for entry in further["dtypes"]:
        for overload in REGISTRY.keys() & set(entry["overloads"]):
            case = REGISTRY[overload]
            more = (dtype for dtype in entry["dtypes"] if dtype not in case.dtypes)
            REGISTRY[overload] = replace(case, dtypes=(*case.dtypes, *more))
    for entry in further["promotions"]:
        for overload in REGISTRY.keys() & set(entry["overloads"]):
            case = REGISTRY[overload]
            pairs = tuple(Promotion(*words) for words in entry["pairs"])
            REGISTRY[overload] = replace(case, promotions=(*case.promotions, *pairs))
    return dict(sorted(REGISTRY.items()))
