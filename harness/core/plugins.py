"""The registry of backends and of converters, and why one of them is unavailable."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import FrameType
from typing import Any, Protocol, TypeVar


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Why a converter or backend cannot run here, one line each.

    Attributes:
        reason: The missing thing, such as ``onnxruntime is not installed``.
        install: The command that installs it, such as ``pip install 'aten-onnx-conformance[openvino]'``.
    """

    reason: str
    install: str


def installed_version(*distributions: str) -> str:
    """Return the version of the first of `distributions` that is installed; "unknown" if none is."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def installed(*distributions: str) -> tuple[str, ...]:
    """Return those of `distributions` that are installed."""
    return tuple(name for name in distributions if installed_version(name) != "unknown")


def importable(module: str) -> bool:
    """Whether the top-level `module` can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def missing_package(module: str, install: str) -> Unavailable | None:
    """Return None if a module can be imported, otherwise how its package is installed."""
    return None if importable(module) else Unavailable(reason=f"{module} is not installed", install=install)


class UnknownName(LookupError):
    """A converter, backend or dtype is not registered; the message suggests similar names.

    Args:
        kind: The kind of name, as in ``--backend``.
        name: The name that the user gave.
        known: All registered names.
    """

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"--{kind} {name}: no such {kind}; {hint}")


class Named(Protocol):
    """An entry of a registry: describes a plug-in before any of it is imported or started."""

    @property
    def name(self) -> str:
        """The name that users write. If it ends in a colon, the text after the colon is an argument."""

    @property
    def default(self) -> bool:
        """Whether a run uses it if the user names none of its kind."""


EntryT = TypeVar("EntryT", bound=Named)


class Registry(dict[str, EntryT]):
    """Plug-ins of one kind by name, from a package's modules, installed entry points, and later registrations.

    Args:
        kind: The kind of plug-in, as in ``--backend``.
        package: A package whose modules register themselves; they are imported when the registry is first used.
        group: An entry-point group; each entry point names an entry, or a module that registers itself.
        broken: Makes the placeholder for a plug-in that failed to load, from its name, the reason and its package's
            version, so that a broken plug-in does not affect the others.
    """

    def __init__(
        self, kind: str, *, package: str, group: str, broken: Callable[[str, Unavailable, str], EntryT]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.group = group
        self._package = package
        self._broken = broken
        self._loaded = False

    def register(self, entry: EntryT) -> EntryT:
        """Add an entry.

        Raises:
            ValueError: The name is taken.
        """
        if entry.name in self:
            raise ValueError(f"{self.kind} {entry.name!r} is registered twice")
        self[entry.name] = entry
        return entry

    def entries(self) -> list[EntryT]:
        """Return all entries, by name."""
        self._load()
        return [self[name] for name in sorted(self)]

    def defaults(self) -> list[EntryT]:
        """Return the entries that a run uses if the user names none, by name."""
        return [entry for entry in self.entries() if entry.default]

    def find(self, name: str) -> tuple[EntryT, str]:
        """Return the entry that a user's name refers to, and the argument after its colon ("" if it takes none).

        Raises:
            UnknownName: No entry has that name; the message suggests similar ones.
        """
        self._load()
        if name in self:
            return self[name], ""
        head, colon, argument = name.partition(":")
        if head + colon not in self:
            # A worker may be forked from a process that loaded entry points earlier, with a shorter path.
            self._load_entry_points()
        if head + colon in self:
            return self[head + colon], argument
        # `onnx-api` without its module is similar to `onnx-api:`.
        raise UnknownName(self.kind, name, sorted(self))

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                name = module.name.rpartition(".")[2]
                self._register_broken(name, module.name, error, "correct the error in that file")
        self._load_entry_points()

    def _load_entry_points(self) -> None:
        for point in metadata.entry_points(group=self.group):
            try:
                entry = point.load()
                # A module registers itself; an entry has to be registered here.
                if hasattr(entry, "probe") and self.get(entry.name) is not entry:
                    self.register(entry)
            except Exception as error:
                package, version = point.value, "unknown"
                if point.dist is not None:
                    package, version = point.dist.name, point.dist.version
                remedy = f"pip install --upgrade {package}"
                self._register_broken(point.name, point.value, error, remedy, version)

    def _register_broken(self, name: str, value: str, error: Exception, remedy: str, version: str = "unknown") -> None:
        if name not in self:
            reason = f"its plug-in {value} failed to load: {type(error).__name__}: {error}"
            self.register(self._broken(name, Unavailable(reason=reason, install=remedy), version))


def definition_place(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the file and the qualified name of a function: the same for one whose file is imported again."""
    return inspect.getfile(function), function.__qualname__


def declaring_place() -> tuple[str, int]:
    """Return the file and line of the module-level statement that is running.

    Decorators and calls use it to record the statement that registers something, however deep the call stack is.
    Returns ``("", 0)`` if no module is being executed, as in a thread.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0
