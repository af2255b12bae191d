"""Whether a case that is worse than expected is so every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.baseline.cell import cells_of
from harness.baseline.gate import Difference, Finding
from harness.invocation import Invocation
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.unit import Unit, run_unit
from harness.replay import Replayed
from harness.verdict.verdict import Verdict

#: Cases of a difference that are run again, and how often.
_CASES = 8
_TIMES = 3


def without_flaky(
    differences: Sequence[Difference], verdicts: Sequence[Verdict], unit: Unit, supervisor: Supervisor
) -> list[Difference]:
    """The differences, those called `FLAKY` of which some case ends differently when it is run again.

    Args:
        differences: Of the unit's cells.
        verdicts: The unit's.
        unit: What was run.
        supervisor: To run it with.
    """
    found = []
    for difference in differences:
        failure = difference.failure
        if difference.finding.fails and failure is not None:
            suspects = [v for v in verdicts if failure.kind in _kinds(v)][:_CASES]
            different = _ends_differently(suspects, unit, supervisor)
            if different is not None:
                first, again = different
                difference = replace(
                    difference,
                    finding=Finding.FLAKY,
                    message=f"{difference.message}; "
                    f"case {first.case_id} was {first.outcome}, then {again.outcome}",
                )
        found.append(difference)
    return found


def _kinds(verdict: Verdict) -> set[tuple[str, str, str]]:
    return {failure.kind for cell in cells_of([verdict]) for failure in cell.failures}


def _ends_differently(
    suspects: Sequence[Verdict], unit: Unit, supervisor: Supervisor
) -> tuple[Verdict, Verdict] | None:
    before = {(v.case_id, v.backend): v for v in suspects}
    replayed = tuple(
        Replayed(
            Invocation.from_json(v.invocation),
            Invocation.from_json(v.exported_invocation) if v.exported_invocation else None,
        )
        for v in suspects
    )
    if not replayed:
        return None
    for _ in range(_TIMES):
        for verdicts in run_unit(replace(unit, replay=replayed), supervisor):
            for again in verdicts:
                first = before.get((again.case_id, again.backend))
                if first is not None and (first.outcome, first.signature) != (again.outcome, again.signature):
                    return first, again
    return None
