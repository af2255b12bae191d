"""One unit of work: an operator, a converter, its backends. What a pytest item runs.

A unit is a plain value and so is its result, a list of verdicts: a pytest-xdist worker, a CI shard or
a notebook runs the same units in the same way:

    with Supervisor() as supervisor:
        for verdict in run_unit(unit, supervisor):
            ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from harness.blame import FailureKind, not_examined, with_blame
from harness.compare import Verdict
from harness.convert import find_converter
from harness.execute import Group, Result, Settings, Supervisor, Task
from harness.generate import OPERATOR_CASES, FromRecord, Generated, Notice, Replayed, Request, Source
from harness.plan.verdict_row import verdict_of


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What to run and where to send it.

    Attributes:
        backends: Names; one export serves all.
        shape_mode: ``static`` or ``dynamic``.
        seed: Of the draws.
        examples: Cases to draw, of each source that draws.
        values: Value draws per exported structure (static), the first included; None for
            the usual number.
        dtypes: Restrict to these; None for all that the operator takes.
        sources: Where invocations come from, in the order in which they are run.
        replay: Recorded invocations to run in place of those; None to ask the sources.
    """

    overload: str
    converter: str
    backends: tuple[str, ...]
    shape_mode: str = "static"
    seed: int = 0
    examples: int = 256
    values: int | None = None
    dtypes: tuple[str, ...] | None = None
    sources: tuple[Source, ...] = (Generated(),)
    replay: tuple[Replayed, ...] | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def word(self) -> str:
        """What tells it from the other units of its operator: ``dynamo``, ``dynamo-dynamic``."""
        return self.converter if self.shape_mode == "static" else f"{self.converter}-{self.shape_mode}"

    @property
    def name(self) -> str:
        """What tells it from the other units of a run: ``aten.celu.default dynamo``."""
        return f"{self.overload} {self.word}"


#: Takes provisional verdicts: failures whose blame is still open.
Hold: TypeAlias = Callable[[list[Verdict]], None]


def run_unit(
    unit: Unit,
    supervisor: Supervisor,
    notice: Callable[[Notice], None] = lambda notice: None,
    hold: Hold = lambda verdicts: None,
) -> Iterator[list[Verdict]]:
    """Find and run the cases of `unit`.

    Args:
        unit: What to run.
        supervisor: Runs it.
        notice: Called with what the sources have to tell a person.
        hold: Called with each failure as soon as it is known. Its final verdict, with the blame, is yielded
            later; a caller that records the held ones loses nothing if the process ends before that.

    Yields:
        Final verdicts: passes as they come, failures at the end of their source, once blame is assigned. Over
        all, one per case and backend. If blame fails, the failures are yielded as not examined, and the
        exception is raised afterwards.

    Raises:
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
        LookupError: an unknown converter or backend.
        harness.record.layout.ResultsError: a source's file cannot be read.
    """
    # A source at a time, so that what failed before is through before the rest begins.
    exemplified: set[FailureKind] = set()
    for name, groups in find_groups(unit, supervisor, notice):
        yield from run_part(unit, supervisor, name, groups, exemplified=exemplified, hold=hold)


def run_part(
    unit: Unit,
    supervisor: Supervisor,
    source: str,
    groups: tuple[Group, ...],
    chosen: Mapping[tuple[str, ...], tuple[Group, ...]] | None = None,
    exemplified: set[FailureKind] | None = None,
    hold: Hold = lambda verdicts: None,
) -> Iterator[list[Verdict]]:
    """Run the cases that a unit has of one source; yields as `run_unit` does.

    `chosen` has by backends those of `groups` to run with them; None for all with all. `exemplified` is for
    `with_blame`, `hold` as for `run_unit`.
    """
    operator = OPERATOR_CASES.get(unit.overload)
    family = operator.family if operator else ""
    converter_version = find_converter(unit.converter).version()
    invocations = {(g.index, case): (g, invocation) for g in groups for case, invocation in g.cases}

    def verdict(result: Result) -> Verdict:
        group, invocation = invocations[result.case]
        return verdict_of(
            result,
            invocation,
            group.exported,
            supervisor,
            source=source,
            family=family,
            shape_mode=unit.shape_mode,
            converter=unit.converter,
            converter_version=converter_version,
        )

    def unexamined(result: Result) -> Result:
        return not_examined(result, invocations[result.case][1], unit.converter)

    task = Task(groups, unit.converter, unit.backends, unit.settings)
    held: list[Result] = []
    for backends, some in (chosen or {unit.backends: groups}).items():
        for results in supervisor.run(replace(task, groups=some, backends=backends)):
            failed = [r for r in results if r.outcome.is_failure] if unit.settings.blame else []
            held += failed
            if failed:
                hold([verdict(unexamined(r)) for r in failed])
            if len(failed) < len(results):
                yield [verdict(r) for r in results if not r.outcome.is_failure or not unit.settings.blame]
    if not held:
        return
    try:
        blamed = with_blame(held, task, supervisor, exemplified)
    except Exception:
        yield [verdict(unexamined(r)) for r in held]
        raise
    yield [verdict(r) for r in blamed]


def find_groups(
    unit: Unit, supervisor: Supervisor, notice: Callable[[Notice], None]
) -> list[tuple[str, tuple[Group, ...]]]:
    """The cases of a unit, each once, under the names of the sources that have any."""
    request = Request(
        overload=unit.overload,
        dynamic=unit.shape_mode == "dynamic",
        seed=unit.seed,
        examples=unit.examples,
        values=unit.values,
        dtypes=unit.dtypes,
        resize=supervisor.resize,
    )
    parts: list[tuple[str, tuple[Group, ...]]] = []
    seen: set[tuple[str, str]] = set()
    index = itertools.count()
    for source in unit.sources if unit.replay is None else (FromRecord(unit.replay),):
        found = source.find(request)
        for said in found.notices:
            notice(said)
        groups: list[Group] = []
        for structure in found.structures:
            exported = structure.exported.case_id if request.dynamic else ""
            new = [i for i in structure.invocations if (i.case_id, exported) not in seen]
            seen.update((i.case_id, exported) for i in new)
            if new:
                groups.append(Group(next(index), structure.exported, tuple(enumerate(new))))
        if groups:
            parts.append((source.name, tuple(groups)))
    return parts
