"""Start the converter, the user's rules and the backend of a route. Nothing else creates any of them.

A worker has a `Starter`, which starts each once. All other code calls `start`, which keeps one for its process.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from harness.core.route import EXPORTED, Route
from harness.pipeline.started_route import StartedRoute
from harness.run.backend import BACKENDS, Backend

if TYPE_CHECKING:
    # Goldens are run without PyTorch.
    from harness.convert.converter import Converter
    from harness.convert.rules.rule import RuleBook


class Starter:
    """The converters and backends that have been started in this process."""

    def __init__(self) -> None:
        self._converters: dict[tuple[str, bool, tuple[str, ...]], tuple[Converter, RuleBook | None]] = {}
        self._backends: dict[str, Backend] = {}

    def start(self, route: Route) -> StartedRoute:
        """Return a route with its converter and its backend; raises their exceptions.

        A route without a backend ends with the artefact; that of a graph begins with it.
        """
        converter = None if route.converter in EXPORTED else self.converter(route)[0]
        return StartedRoute(route, converter, self.backend(route.backend) if route.backend else None)

    def converter(self, route: Route) -> tuple[Converter, RuleBook | None]:
        """Return the converter of a route and the user's rules that it was started with; None for no rules.

        Raises:
            UnknownName: no converter has that name.
            RuleProblem: a file with rules cannot be used.
        """
        from harness.convert.converter import find_converter
        from harness.convert.rules.rule import RuleBook

        key = (route.converter, route.public_api, route.rules)
        if key not in self._converters:
            entry = find_converter(route.converter)
            book = RuleBook.load(route.rules, entry.name)
            if not book.rules or entry.create_with_rules is None:
                self._converters[key] = entry.create(route.public_api), None
            else:
                self._converters[key] = entry.create_with_rules(route.public_api, book), book
        return self._converters[key]

    def backend(self, name: str) -> Backend:
        """Return the backend called `name`; raises `UnknownName`, or what the backend raises."""
        if name not in self._backends:
            entry, argument = BACKENDS.find(name)
            self._backends[name] = entry.create(argument)
        return self._backends[name]

    @property
    def converters(self) -> tuple[Converter, ...]:
        """The converters that have been started."""
        return tuple(converter for converter, _ in self._converters.values())

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends that have been started."""
        return tuple(self._backends.values())


@cache
def _starter() -> Starter:
    return Starter()


def start(route: Route) -> StartedRoute:
    """Return a route with its converter and its backend, each started once in this process; see `Starter.start`."""
    return _starter().start(route)


def start_converter(route: Route) -> Converter:
    """Return the converter of a route, with the user's rules, started once in this process."""
    return _starter().converter(route)[0]


def start_backend(name: str) -> Backend:
    """Return the backend called `name`, started once in this process."""
    return _starter().backend(name)
