"""The health of an installation as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlugIn:
    """A converter, transform or backend.

    Attributes:
        kind: ``converter``, ``transform`` or ``backend``.
        name: Its name.
        version: Its version; "" if it cannot run.
        reason: Why it cannot run here; "" if it can.
        install: How to get it.
    """

    kind: str
    name: str
    version: str = ""
    reason: str = ""
    install: str = ""


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with an installation.

    Attributes:
        id: ``two-distributions``, ``hidden-package``, ``unmet-requirement``, ``no-backend``, ``little-memory``,
            ``not-writable``, ``route-fails`` or ``fault-not-found``.
        subject: The package, folder or route that it is about.
        details: What was found: versions, places, or a message.
    """

    id: str
    subject: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installation:
    """What is installed.

    Attributes:
        versions: Name → version, of Python and of the packages that take part.
        plugins: Converters, transforms and backends.
        problems: What is wrong.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    plugins: tuple[PlugIn, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class RouteTest:
    """The result of a route.

    Attributes:
        route: The route's name.
        passed: Number of cases that pass.
        cases: Number of cases; 0 if there was no time left.
        seconds: Seconds that they took.
        message: The first failure; "" for none.
        is_built_only: Whether models are built and cannot run here, for lack of a GPU.
    """

    route: str
    passed: int
    cases: int
    seconds: float
    message: str = ""
    is_built_only: bool = False
