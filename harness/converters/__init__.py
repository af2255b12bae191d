"""Converters: a PyTorch program in, an ONNX model out. One file each; `base` is the protocol."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.availability import UnknownName, load_entry_points
from harness.converters.base import REGISTRY, ConverterEntry


@cache
def entries() -> tuple[ConverterEntry, ...]:
    """Every converter: this package's files, then installed ones (entry points `harness.converters`)."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    load_entry_points("harness.converters")
    return tuple(REGISTRY.values())


def find(name: str) -> ConverterEntry:
    """The converter called `name`.

    Raises:
        UnknownName: there is none; the message has near names.
    """
    for entry in entries():
        if entry.name == name:
            return entry
    raise UnknownName("converter", name, [entry.name for entry in entries()])


def defaults() -> tuple[str, ...]:
    """Names of the converters of a plain ``pytest harness``."""
    return tuple(entry.name for entry in entries() if entry.default)
