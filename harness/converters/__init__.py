"""Converters: a PyTorch program in, an ONNX model out. One file each; `base` is the protocol."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from harness.availability import UnknownName, load_entry_points
from harness.converters.base import REGISTRY, ConverterEntry

ENTRY_POINT_GROUP = "harness.converters"


def entries() -> tuple[ConverterEntry, ...]:
    """Every converter: this package's files, then installed ones (entry points `harness.converters`), then
    those that were registered since."""
    _load()
    return tuple(REGISTRY.values())


def find(name: str) -> ConverterEntry:
    """The converter called `name`.

    Raises:
        UnknownName: there is none; the message has near names.
    """
    _load()
    if name not in REGISTRY:
        # A worker process is forked from one that looked when less was to be found: its path is the
        # session's, its modules are not.
        load_entry_points(ENTRY_POINT_GROUP)
    if name not in REGISTRY:
        raise UnknownName("converter", name, list(REGISTRY))
    return REGISTRY[name]


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    load_entry_points(ENTRY_POINT_GROUP)


def defaults() -> tuple[str, ...]:
    """Names of the converters of a plain ``pytest harness``."""
    return tuple(entry.name for entry in entries() if entry.default)
