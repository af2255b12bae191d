"""One golden's model on one backend, judged by what is stored. Runs without PyTorch."""

from __future__ import annotations

from functools import cache

import onnx

from harness.compare import Outcome, Stage, compare, normalise
from harness.gate.golden.golden import Golden
from harness.gate.golden.isolated import Died, Isolated
from harness.gate.golden.outcome import PASSED, Ending
from harness.generate import load_cases
from harness.run import BACKENDS, Backend, DeviceLost, UnsupportedModel


def ending_of(golden: Golden, converter: str, backend: str, process: Isolated) -> Ending:
    """How the golden's model ends on a backend that is started in `process`, which may die of it."""
    try:
        return process.call(run_here, golden, converter, backend)
    except DeviceLost as error:
        process.close()
        return Ending(Stage.RUN, Outcome.CRASH, normalise(str(error)), str(error))
    except Died as death:
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
    for dtype in sorted({str(a.dtype) for a in (*golden.inputs, *golden.expected)}):
        narrower = runtime.narrows(dtype)
        if narrower:
            return _ended(Stage.LOAD, Outcome.NARROWED, f"{backend} silently computes {dtype} in {narrower}")
    model = onnx.load_model_from_string(golden.models[converter])
    stage = Stage.LOAD
    try:
        session = runtime.load(model, None)
        if not session.runnable:
            return Ending(stage, Outcome.BUILT)
        stage = Stage.RUN
        names = {value.name for value in model.graph.input}
        feeds = {f"input_{j}": array for j, array in enumerate(golden.inputs)}
        outputs = session.run({name: array for name, array in feeds.items() if name in names})
    except UnsupportedModel as error:
        return _ended(stage, Outcome.UNSUPPORTED, _words(error))
    except DeviceLost:
        raise
    except Exception as error:
        return _ended(stage, Outcome.ERROR, _words(error))
    comparison = compare(golden.judge, golden, outputs)
    if comparison.problem is None:
        return PASSED
    message = f"{comparison.problem}: {comparison.detail}"
    return Ending(Stage.COMPARE, Outcome.MISMATCH, comparison.problem, message)


def version_of(backend: str) -> str:
    """Version of a backend, started in this process."""
    return _started(backend).version


@cache
def _started(name: str) -> Backend:
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)


def _ended(stage: Stage, outcome: Outcome, message: str) -> Ending:
    return Ending(stage, outcome, normalise(message), message)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]
