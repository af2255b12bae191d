"""A pytest plug-in: a Python without `expecttest`, which PyTorch's operator samples need, for one session."""

from __future__ import annotations

import sys
from types import ModuleType

_hidden: list[ModuleType | None] = []


def pytest_addoption() -> None:
    """Hide it, before any option is looked at."""
    _hidden.append(sys.modules.get("expecttest"))
    sys.modules["expecttest"] = None  # type: ignore[assignment]


def pytest_unconfigure() -> None:
    """Take that back."""
    del sys.modules["expecttest"]
    found = _hidden.pop()
    if found is not None:
        sys.modules["expecttest"] = found
