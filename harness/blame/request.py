"""Ask a worker for the diagnoses of a task's failures, and replace it if a witness kills it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness.blame.testimony import Asking, Blamed, BlameTask
from harness.compare.diagnosis import Diagnosis
from harness.compare.verdict import UNKNOWN, Outcome
from harness.core.isolation import preload_in_fork_server
from harness.pipeline.case_run import CaseRun
from harness.pipeline.supervisor import Death, Supervisor, WorkerFailed
from harness.pipeline.task import Task

preload_in_fork_server("harness.blame.preloaded_witnesses")

#: The share of the time limit for a witness: it asks about one call, while a step of a case may be about a batch of
#: them, and its answer is not the verdict.
_PATIENCE = 1 / 3
#: Deaths after which a witness is no longer asked within a task; a hang counts as this many.
_BARRED_AT = 3


def request_blame(results: Sequence[CaseRun], task: Task, supervisor: Supervisor) -> list[CaseRun]:
    """Return the failures of the supervisor's latest task, each problem of each with a diagnosis.

    A witness that kills the worker is skipped for the failure at hand, and for all others if it does so repeatedly or
    hangs. A failure that kills it in spite of that has the rule ``examination-failed``.

    Raises:
        WorkerFailed: no worker can be started, or it ends while no witness is asked.
    """
    deaths: Counter[str] = Counter()
    left = BlameTask(replace(task, serial=supervisor.serial), tuple(results))
    while True:
        known, blamed, death = dict(left.known), None, None
        for message in supervisor.serve(left, patience=_PATIENCE):
            if isinstance(message, Blamed):
                known[message.index] = message.diagnosis
            elif isinstance(message, Death):
                death = message
            elif isinstance(message, list):
                blamed = message
        if blamed is not None:
            return blamed
        assert death is not None
        asking = death.announced
        if not isinstance(asking, Asking):
            raise WorkerFailed(death.message)
        left = _after_death(left, asking, known, deaths, death)


def _after_death(
    task: BlameTask, asking: Asking, known: dict[int, Diagnosis], deaths: Counter[str], death: Death
) -> BlameTask:
    lost = (asking.index, asking.witness)
    if not asking.witness or lost in task.dead:
        known[asking.index] = Diagnosis(UNKNOWN, "examination-failed")
    deaths[asking.witness] += _BARRED_AT if death.outcome is Outcome.TIMEOUT else 1
    barred = {witness for witness, count in deaths.items() if witness and count >= _BARRED_AT}
    return replace(task, known=known, dead=task.dead | {lost}, barred=task.barred | barred)
