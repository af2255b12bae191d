"""The lines of a session other than its summary: the header, the progress line, the sources' reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import harness
from harness.convert.converter import CONVERTERS
from harness.core.invocation import PROGRAM
from harness.core.text import count, plain
from harness.plan.options import Options
from harness.plan.plan import Plan
from harness.record.run_info import installed_versions
from harness.run.backend import BACKENDS


def header(plan: Plan, options: Options) -> list[str]:
    """Return the lines at the top of a session: versions, the available converters and backends, and the missing
    ones."""
    runtimes = [name for entry in BACKENDS.defaults() for name in entry.distributions or ()]
    installed = installed_versions(runtimes)
    named = ("torch", "onnx", "onnxscript", *runtimes, "hypothesis")
    versions = ", ".join(f"{name} {installed[name]}" for name in named if name in installed)
    lines = [f"conformance: harness {harness.__version__}, {versions}"]
    lines += _participants(plan, "converter", [e.name for e in CONVERTERS.entries()], plan.converters)
    lines += _participants(plan, "backend", [e.name for e in BACKENDS.entries()], plan.backends, _adapters(plan))
    if plan.has_models:
        models = len({unit.model for unit in plan.units})
        shapes = "static" if options.shapes == "mixed" else options.shapes
        lines.append(f"plan: {models} whole model{'s' if models > 1 else ''}, {shapes} shapes")
        return lines
    operators = len({unit.overload for unit in plan.units})
    if options.replay is None:
        lines.append(f"sources: {', '.join(plan.sources)}")
        dynamic = any(unit.route.dynamic for unit in plan.units)
        mixed = "static shapes and some dynamic ones" if dynamic else "static shapes"
        shapes = mixed if options.shapes == "mixed" else f"{options.shapes} shapes"
        what = f"{_budget(plan)}, {shapes}, seed {options.seed}"
    else:
        what = f"{len(options.replay)} recorded cases"
    lines.append(f"plan: {_subjects(plan)}, {what}")
    if plan.shard is not None:
        whole = sum(len(part) for part in plan.whole)
        lines.append(f"shard: {plan.shard}, {operators:,} of {whole:,} operator overloads")
    return lines


def _subjects(plan: Plan) -> str:
    """Return the number of operator overloads, and of patterns of programs."""
    overloads = {unit.overload for unit in plan.units}
    patterns = sum(name.startswith(PROGRAM) for name in overloads)
    kinds = ((len(overloads) - patterns, "operator overload"), (patterns, "pattern"))
    return " and ".join(count(number, noun) for number, noun in kinds if number)


def _budget(plan: Plan) -> str:
    """Return the number of cases of each operator, and of each pattern of programs if it differs."""
    static = [unit for unit in plan.units if not unit.route.dynamic] or list(plan.units)
    budgets = dict.fromkeys(f"{unit.examples}" for unit in sorted(static, key=lambda unit: -unit.examples))
    return f"{' and '.join(budgets)} cases each"


def _adapters(plan: Plan) -> dict[str, str]:
    """Return backend → its device, if the name does not tell."""
    asked = {name: BACKENDS.find(name)[0].adapter for name in plan.backends}
    return {name: ask() for name, ask in asked.items() if ask is not None}


def _participants(
    plan: Plan, kind: str, known: list[str], chosen: tuple[str, ...], notes: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    unavailable = {name: why for k, name, why in plan.unavailable if k == kind}
    rest = [name for name in known if name not in chosen and name not in unavailable]
    named = (f"{name} on {notes[name]}" if name in notes else name for name in chosen)
    lines = [f"{kind}s: {', '.join(named)}" + (f" (also here: {', '.join(rest)})" if rest else "")]
    if unavailable:
        # The reason, and how to install it, is reported if the user asks for one by name.
        lines.append(f"  not here: {', '.join(unavailable)} (--{kind} NAME says what is missing)")
    return lines


@dataclass(frozen=True, kw_only=True)
class ProgressState:
    """The progress of a run: cases, failed cases and pytest items that are done, seconds since it began, and the
    seconds that the user gives it; None for as long as it takes."""

    cases: int
    failures: int
    items_done: int
    items: int
    elapsed: float
    budget: float | None = None

    @property
    def rate(self) -> float:
        """Cases per second; 0 before the clock has moved."""
        return self.cases / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end, if items keep their average time; None while unknown."""
        if not self.items_done:
            return None
        left = self.elapsed / self.items_done * max(self.items - self.items_done, 0)
        return left if self.budget is None else min(left, max(self.budget - self.elapsed, 0.0))


def line(state: ProgressState) -> str:
    """Return ``1,234 cases, 58.2/s, 12/180 items, 4 failures, 2:31 left``."""
    left = "time left unknown" if state.left is None else f"{duration(state.left)} left"
    noun = "failure" if state.failures == 1 else "failures"
    return (
        f"{state.cases:,} cases, {state.rate:.1f}/s, {state.items_done}/{state.items} items, "
        f"{state.failures:,} {noun}, {left}"
    )


def duration(seconds: float) -> str:
    """Return ``0:07``, ``2:31``, ``1:02:31``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class ProgressLine:
    """Counts the finished pytest items, from its creation on; `clock` gives seconds, and `budget` is as in
    `ProgressState`."""

    def __init__(self, items: int, clock: Callable[[], float] = time.monotonic, *, budget: float | None = None) -> None:
        self._items = items
        self._budget = budget
        self._clock = clock
        self._began = clock()
        self._items_done = 0
        self._cases = 0
        self._failures = 0

    def add(self, *, items: int = 0, cases: int = 0, failures: int = 0) -> None:
        """Count further items, cases and failures."""
        self._items_done += items
        self._cases += cases
        self._failures += failures

    @property
    def state(self) -> ProgressState:
        """Return the present progress of the run."""
        return ProgressState(
            cases=self._cases,
            failures=self._failures,
            items_done=self._items_done,
            items=self._items,
            elapsed=self._clock() - self._began,
            budget=self._budget,
        )

    def line(self) -> str:
        """Return the present progress of the run on one line."""
        return line(self.state)


class Afterwords:
    """Collects the reports of the sources of a run's cases, each message once."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, None]] = {}
        self._added = self._dropped = 0

    def add(self, notices: Iterable[Sequence[str]], remembered: Sequence[int]) -> None:
        """Add one item's report.

        Args:
            notices: (kind, text) of `harness.generate.sources.source.Notice`.
            remembered: (added, dropped) of `harness.generate.regressions.remember.Remembered`.
        """
        for kind, text in notices:
            self._said.setdefault(kind, {})[text] = None
        self._added += remembered[0]
        self._dropped += remembered[1]

    def lines(self) -> list[str]:
        """Return a line for each message."""
        lines = []
        if self._added or self._dropped:
            kept = f"kept {count(self._added, 'failure')} to run first next time"
            lines.append(f"corpus: {kept}, dropped {self._dropped} that no longer fail")
        uncovered = sorted(self._said.get("uncovered", ()))
        if uncovered:
            some = ", ".join(uncovered[:3]) + (", …" if len(uncovered) > 3 else "")
            lines.append(
                f"opinfo: captured {count(len(uncovered), 'more overload')}, "
                f"not run because they have no operator case: {some}"
            )
        for kind in sorted(self._said.keys() - {"uncovered"}):
            lines += [plain(text) for text in self._said[kind]]
        return lines
