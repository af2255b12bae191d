"""What plugs in: the registry of backends and of converters, and why one of them cannot take part here."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import FrameType
from typing import Protocol, TypeVar


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """A converter or backend that cannot run here, in one line each.

    Attributes:
        reason: What is missing, e.g. ``onnxruntime is not installed``.
        install: What the user types to get it, e.g. ``pip install '.[openvino]'``.
    """

    reason: str
    install: str


def installed_version(*distributions: str) -> str:
    """The version of the first of `distributions` that is installed, "unknown" if none is."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def installed(*distributions: str) -> tuple[str, ...]:
    """Those of `distributions` that are installed."""
    return tuple(name for name in distributions if installed_version(name) != "unknown")


def importable(module: str) -> bool:
    """Whether the top-level `module` can be found; nothing is imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


class UnknownName(LookupError):
    """A converter, backend or dtype that is not registered; the message names near ones.

    Args:
        kind: What was asked for, as in ``--backend``.
        name: The user's word.
        known: What there is.
    """

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"--{kind} {name}: no such {kind}; {hint}")


class Named(Protocol):
    """What a registry holds: a plug-in before anything of it is imported or started."""

    @property
    def name(self) -> str:
        """As a user writes it. Where it ends in a colon, what follows in the user's word is an argument."""

    @property
    def default(self) -> bool:
        """Whether a run that names none of its kind takes it."""


EntryT = TypeVar("EntryT", bound=Named)


class Registry(dict[str, EntryT]):
    """Plug-ins of one kind by name: files of a package, entry points of installed packages, and later ones.

    Args:
        kind: As in ``--backend``.
        package: Every module of it is imported at first need and registers itself.
        group: Of entry points; each names a module that registers itself, or is an entry.
        broken: Makes the entry that stands for a plug-in that cannot be loaded, of its name, why, and its
            package's version. One broken plug-in must not take the others with it.
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
            ValueError: the name is taken.
        """
        if entry.name in self:
            raise ValueError(f"{self.kind} {entry.name!r} is registered twice")
        self[entry.name] = entry
        return entry

    def entries(self) -> list[EntryT]:
        """All entries, by name."""
        self._load()
        return [self[name] for name in sorted(self)]

    def defaults(self) -> list[EntryT]:
        """Those that a run takes which names none, by name."""
        return [entry for entry in self.entries() if entry.default]

    def find(self, word: str) -> tuple[EntryT, str]:
        """The entry that a user's word means, and the argument in it ("" for an entry without one).

        Raises:
            UnknownName: there is none; the message has near names.
        """
        self._load()
        head, colon, argument = word.partition(":")
        if head + colon not in self:
            # A worker process is forked from one that looked when less was to be found: its path is the
            # session's, its modules are not.
            self._load_entry_points()
        if head + colon in self:
            return self[head + colon], argument
        # `onnx-api` without its module is near to `onnx-api:`.
        raise UnknownName(self.kind, word, sorted(self))

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
                # A module registers itself; what names an entry leaves that to us.
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


def declaring_place() -> tuple[str, int]:
    """The file and line that run now at the outermost level of the module behind the call.

    ``("", 0)`` where no module does, as in a thread.
    What registers itself by a decorator or a call so knows the statement that did it, however many functions
    lie between.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0
