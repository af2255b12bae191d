"""One unit of work: an operator, a converter, its backends. What a pytest item runs.

A unit is a plain value and so is its result, a list of verdicts: a pytest-xdist worker, a CI shard or
a notebook runs the same units in the same way:

    with Supervisor() as supervisor:
        for verdict in run_unit(unit, supervisor):
            ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness import converters
from harness.generate.draws import Drawn, draw_cases
from harness.generate.operator_case import REGISTRY
from harness.invocation import Invocation
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Group, Result, Settings, Task
from harness.replay import Replayed
from harness.verdict.signature import normalise
from harness.verdict.verdict import Outcome, Verdict

#: Sizes that a dynamic export is run with beside the exported ones.
_SHAPES_PER_EXPORT = 3


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What to draw and where to send it.

    Attributes:
        overload: Dotted name.
        converter: Name.
        backends: Names; one export serves all.
        shape_mode: ``static`` or ``dynamic``.
        seed: Of the draws.
        examples: Cases to draw.
        values: Value draws per exported structure (static), the first included.
        dtypes: Restrict to these; None for all that the operator takes.
        replay: Recorded invocations to run in place of drawn ones; None to draw.
        settings: How tasks are carried out.
    """

    overload: str
    converter: str
    backends: tuple[str, ...]
    shape_mode: str = "static"
    seed: int = 0
    examples: int = 64
    values: int = 4
    dtypes: tuple[str, ...] | None = None
    replay: tuple[Replayed, ...] | None = None
    settings: Settings = field(default_factory=Settings)


def run_unit(unit: Unit, supervisor: Supervisor) -> Iterator[list[Verdict]]:
    """Draw and run the cases of `unit`.

    Yields:
        Verdicts as they come; over all, one per case and backend.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
        LookupError: an unknown converter or backend.
    """
    groups = _groups(unit, supervisor)
    invocations = {(g.index, case): (g, invocation) for g in groups for case, invocation in g.cases}
    converter_version = converters.find(unit.converter).version()
    task = Task(tuple(groups), unit.converter, unit.backends, unit.settings)
    for results in supervisor.run(task) if groups else ():
        yield [
            _verdict(unit, supervisor, converter_version, *invocations[result.case], result)
            for result in results
        ]


def _groups(unit: Unit, supervisor: Supervisor) -> list[Group]:
    if unit.replay is not None:
        return _replayed_groups(unit.replay)
    if unit.shape_mode == "static":
        drawn = _draw(unit, structures=-(-unit.examples // unit.values), values=unit.values)
        return [Group(i, d.invocations[0], tuple(enumerate(d.invocations))) for i, d in enumerate(drawn)]
    drawn = _draw(unit, structures=-(-unit.examples // (1 + _SHAPES_PER_EXPORT)), values=1)
    bases = [d.invocations[0] for d in drawn]
    found = supervisor.resize(bases, _SHAPES_PER_EXPORT)
    # A case whose sizes cannot change has nothing dynamic to test.
    return [
        Group(i, base, tuple(enumerate((base, *variants))))
        for i, (base, variants) in enumerate(zip(bases, found, strict=True))
        if variants
    ]


def _replayed_groups(replay: Sequence[Replayed]) -> list[Group]:
    together: dict[str, list[Replayed]] = {}
    for recorded in replay:
        exported = recorded.exported
        key = recorded.invocation.structure_id if exported is None else exported.case_id
        together.setdefault(key, []).append(recorded)
    return [
        Group(
            i,
            members[0].exported or members[0].invocation,
            tuple(enumerate(member.invocation for member in members)),
        )
        for i, members in enumerate(together.values())
    ]


def _draw(unit: Unit, *, structures: int, values: int) -> list[Drawn]:
    return draw_cases(
        REGISTRY[unit.overload], seed=unit.seed, structures=structures, values=values, dtypes=unit.dtypes
    )


def _verdict(
    unit: Unit,
    supervisor: Supervisor,
    converter_version: str,
    group: Group,
    invocation: Invocation,
    result: Result,
) -> Verdict:
    case = REGISTRY.get(unit.overload)
    backend = supervisor.backends.get(result.backend)
    comparison = result.comparison
    return Verdict(
        case_id=invocation.case_id,
        overload=unit.overload,
        family=case.family if case else "",
        dtype=invocation.dtype,
        shape_mode=unit.shape_mode,
        source="generated" if unit.replay is None else "replay",
        converter=unit.converter,
        converter_version=converter_version,
        opset=result.opset,
        backend=result.backend,
        backend_version=backend.version if backend else "",
        device=backend.device if backend else "",
        stage=result.stage,
        outcome=result.outcome,
        blame=result.blame,
        evidence=result.evidence,
        signature=_signature(result),
        message=result.message,
        rule=result.rule,
        max_abs_error=comparison.max_abs_error if comparison else None,
        max_rel_error=comparison.max_rel_error if comparison else None,
        max_ulp_error=comparison.max_ulp_error if comparison else None,
        needed_rtol=comparison.needed_rtol if comparison else None,
        needed_atol=comparison.needed_atol if comparison else None,
        mismatched_elements=comparison.mismatched_elements if comparison else 0,
        total_elements=comparison.total_elements if comparison else 0,
        convert_ms=result.convert_ms,
        load_ms=result.load_ms,
        run_ms=result.run_ms,
        structure_id=invocation.structure_id,
        invocation=invocation.json,
        exported_invocation="" if unit.shape_mode == "static" else group.exported.json,
    )


def _signature(result: Result) -> str:
    if result.comparison is not None and result.comparison.problem:
        return result.comparison.problem
    return normalise(result.message) if result.outcome is not Outcome.PASS else ""
