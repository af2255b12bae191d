"""The lines of the converter that a recorded failure may come of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc

from harness.analyse.places.place_task import PlaceTask, find_places
from harness.analyse.places.repair import Limits
from harness.analyse.places.suspect import Suspect
from harness.compare import CONVERTER, Outcome, Verdict
from harness.core import InvalidInvocation, Invocation
from harness.execute import PREFIX, Settings, Supervisor
from harness.record import store

#: Cases that are taken from a run, of each kind.
_MOST = 8
#: Seconds for one step.
_TIMEOUT = 120.0


def can_be_placed(verdict: Verdict) -> bool:
    """Whether a verdict is a failure whose lines can be looked for: the converter's, of one call, exported
    with fixed shapes and without rules of the user's."""
    if verdict.rule:
        return False
    static = verdict.shape_mode != "dynamic" and not verdict.overload.startswith(PREFIX)
    return verdict.outcome.is_failure and verdict.blame == CONVERTER and static


def places_of(run: Path, verdict: Verdict, *, opset: int | None, limits: Limits | None = None) -> tuple[Suspect, ...]:
    """The lines that a recorded failure may come of, the likeliest first; none where nobody can tell.

    The run's other cases of the operator say which lines run where cases fail, and which where they pass.

    Args:
        opset: That the run emitted; None for the converter's default.
        limits: How many small changes are tried; None for none.

    Raises:
        ResultsError: the run cannot be read.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    return _placed(run, verdict, (verdict.invocation,), opset, limits)


def places_of_case(
    run: Path, case_id: str, converter: str, backend: str, invocation: Invocation, *, opset: int | None
) -> tuple[Suspect, ...]:
    """The same for a recorded case; none where its failure is not the converter's.

    Args:
        invocation: What fails as the case does: itself, or what it was shrunk to.
        opset: That the run emitted; None for the converter's default.

    Raises:
        ResultsError: the run cannot be read.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    here = (pc.field("case_id") == case_id) & (pc.field("converter") == converter)
    rows = store.verdicts(run, here & (pc.field("backend") == backend))
    verdict = next((row for row in rows if can_be_placed(row)), None)
    if verdict is None:
        return ()
    return _placed(run, verdict, (invocation.json, verdict.invocation), opset, Limits())


def _placed(
    run: Path, verdict: Verdict, first: tuple[str, ...], opset: int | None, limits: Limits | None
) -> tuple[Suspect, ...]:
    """See `places_of`; `first` are invocations that fail, those that matter most."""
    same = (
        (pc.field("overload") == verdict.overload)
        & (pc.field("converter") == verdict.converter)
        & (pc.field("backend") == verdict.backend)
    )
    rows = [row for row in store.verdicts(run, same) if row.shape_mode == verdict.shape_mode]
    how = verdict.stage, verdict.outcome, verdict.signature
    alike = [row.invocation for row in rows if (row.stage, row.outcome, row.signature) == how]
    right = [row.invocation for row in rows if row.outcome is Outcome.PASS]
    task = PlaceTask(
        failing=_invocations([*first, *alike]),
        passing=_invocations(right),
        converter=verdict.converter,
        backend=verdict.backend,
        settings=Settings(opset=opset, blame=False),
        limits=limits,
    )
    with Supervisor(timeout=_TIMEOUT) as supervisor:
        return find_places(task, supervisor)


def _invocations(texts: Iterable[str]) -> tuple[Invocation, ...]:
    found: list[Invocation] = []
    for text in list(dict.fromkeys(texts))[:_MOST]:
        # One of another version cannot be read.
        with contextlib.suppress(InvalidInvocation):
            found.append(Invocation.from_json(text))
    return tuple(found)
