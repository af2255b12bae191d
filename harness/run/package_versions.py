"""Versions of installed packages, read without importing them."""

from __future__ import annotations

import importlib.util
from importlib import metadata


def installed_version(*distributions: str) -> str:
    """The version of the first of `distributions` that is installed, "unknown" if none is."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def importable(module: str) -> bool:
    """Whether the top-level `module` can be found; nothing is imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed(*distributions: str) -> tuple[str, ...]:
    """Those of `distributions` that are installed."""
    return tuple(name for name in distributions if installed_version(name) != "unknown")
