"""One golden's model on one backend, judged by what is stored. Runs without PyTorch."""

from __future__ import annotations

from functools import cache

import onnx

from harness.compare import Outcome, Stage, compare, normalise
from harness.core import IsolatedCalls, ProcessDied
from harness.execute import StepFailure, named_feeds, narrowing, outputs_or_failure
from harness.gate.golden.golden import Golden
from harness.gate.golden.outcome import PASSED, Ending
from harness.generate import load_cases
from harness.run import BACKENDS, Backend, DeviceLost


def ending_of(golden: Golden, converter: str, backend: str, process: IsolatedCalls) -> Ending:
    """How the golden's model ends on a backend that is started in `process`, which may die of it."""
    try:
        return process.call(run_here, golden, converter, backend)
    except DeviceLost as error:
        process.close()
        return Ending(Stage.RUN, Outcome.CRASH, normalise(str(error)), str(error))
    except ProcessDied as death:
        outcome = Outcome.TIMEOUT if death.hung else Outcome.CRASH
        return Ending(Stage.RUN, outcome, normalise(str(death)), str(death))


def run_here(golden: Golden, converter: str, backend: str) -> Ending:
    """The same in this process.

    Raises:
        KeyError: the golden has no model of that converter.
        harness.run.backend.DeviceLost: see there.
    """
    load_cases()
    runtime = _started(backend)
    narrowed = narrowing(backend, runtime, {str(a.dtype) for a in (*golden.inputs, *golden.expected)})
    if narrowed:
        return Ending(Stage.LOAD, Outcome.NARROWED, normalise(narrowed), narrowed)
    model = onnx.load_model_from_string(golden.models[converter])
    names = [f"input_{j}" for j in range(len(golden.inputs))]
    found = outputs_or_failure(runtime, model, named_feeds(model, names, golden.inputs))
    if isinstance(found, StepFailure):
        if found.outcome is Outcome.BUILT:
            return Ending(found.stage, found.outcome)
        said = f"{type(found.error).__name__}: {found.error}"[:2000]
        return Ending(found.stage, found.outcome, normalise(said), said)
    comparison = compare(golden.judge, golden, found)
    if comparison.problem is None:
        return PASSED
    return Ending(Stage.COMPARE, Outcome.MISMATCH, comparison.problem, comparison.message)


def version_of(backend: str) -> str:
    """Version of a backend, started in this process."""
    return _started(backend).version


@cache
def _started(name: str) -> Backend:
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)
