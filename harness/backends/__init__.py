"""The backends: every file of this package, and the entry points of group `harness.backends`.

A new backend is one file here that calls :func:`harness.backends.base.register` when imported,
or a package elsewhere whose entry point names a module that does so, or a `BackendEntry`. Importing
a backend's file must not import its runtime.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib import metadata

from harness.availability import Unavailable, UnknownName
from harness.backends.base import REGISTRY, BackendEntry, register

__all__ = ["ENTRY_POINT_GROUP", "UnknownBackend", "defaults", "entries", "find"]

ENTRY_POINT_GROUP = "harness.backends"


class UnknownBackend(UnknownName):
    """No backend has that name; the message is one line with near matches."""


def entries() -> list[BackendEntry]:
    """Every registered backend, by name."""
    return [REGISTRY[name] for name in sorted(REGISTRY)]


def defaults() -> list[BackendEntry]:
    """The backends of a plain ``pytest harness``, by name."""
    return [entry for entry in entries() if entry.default]


def find(name: str) -> tuple[BackendEntry, str]:
    """The backend that a user's word means, and the argument in it.

    Args:
        name: ``ort-cpu``, or ``onnx-api:MODULE`` where the entry's name ends in a colon.

    Returns:
        The entry, and what follows its colon ("" for an entry without one).

    Raises:
        UnknownBackend: no such backend.
    """
    head, colon, argument = name.partition(":")
    entry = REGISTRY.get(head + colon)
    if entry is not None:
        return entry, argument
    # `onnx-api` without its module is near to `onnx-api:`.
    raise UnknownBackend("backend", name, sorted(REGISTRY))


def _load_package() -> None:
    """Import every backend file of this package; names with an underscore are their helpers."""
    for module in pkgutil.iter_modules(__path__):
        if module.name != "base" and not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")


def _load_entry_points() -> None:
    """Import third-party backends; one that fails is listed as unavailable with the reason."""
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = point.load()
            if isinstance(loaded, BackendEntry) and REGISTRY.get(loaded.name) is not loaded:
                register(loaded)
        except Exception as error:
            _register_broken(point, error)


def _register_broken(point: metadata.EntryPoint, error: Exception) -> None:
    package = point.dist.name if point.dist is not None else point.value
    version = point.dist.version if point.dist is not None else "unknown"
    problem = Unavailable(
        reason=f"its plug-in {point.value} failed to load: {type(error).__name__}: {error}",
        install=f"pip install --upgrade {package}",
    )

    def create(argument: str) -> object:
        raise RuntimeError(problem.reason)

    if point.name not in REGISTRY:
        register(
            BackendEntry(
                name=point.name,
                probe=lambda argument: problem,
                create=create,  # type: ignore[arg-type]
                version=lambda argument: version,
                summary="a plug-in that failed to load",
            )
        )


_load_package()
_load_entry_points()
