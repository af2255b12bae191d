"""The steps of one case from its model on: check, load, run. Whoever runs a case takes them from here.

They need no PyTorch, since goldens are run with them, too. The steps before are in `harness.pipeline.program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx

from harness.compare.output_comparison import FLUSHED, OutputProblem
from harness.compare.repeated import Again
from harness.compare.verdict import BACKEND, CONVERTER, UNKNOWN, Outcome, Stage
from harness.core.dtypes import INT_RANGE, PRECISION, Array
from harness.run.artefact import AnyModel, Artefact, input_names, output_names
from harness.run.backend import BACKENDS, Backend, BackendSession, DeviceLost, ShapeRange, UnsupportedModel

_T = TypeVar("_T")


@dataclass(frozen=True)
class StepFailure:
    """Why a case got no further than a step, in the words of whoever took it.

    The outcome is `UNSUPPORTED`, `ERROR`, or `BUILT` where the model cannot be run on this machine.
    """

    stage: Stage
    outcome: Outcome
    error: Exception

    @property
    def blame(self) -> str:
        """Whose failure it is, as far as the step tells."""
        if self.stage in (Stage.CONVERT, Stage.CHECK):
            return CONVERTER
        return BACKEND if self.outcome is Outcome.UNSUPPORTED else UNKNOWN


def emitted_opset(model: AnyModel) -> int | None:
    """Version of the default operator set that `model` imports; None also for what is no ONNX model."""
    for imported in () if isinstance(model, Artefact) else model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            return int(imported.version)
    return None


def check_opset(model: onnx.ModelProto, opset: int | None) -> None:
    """Raises `ValueError` where a model has another opset than was asked for."""
    emitted = emitted_opset(model)
    if opset is not None and emitted != opset:
        raise ValueError(f"asked for opset {opset}, the converter emitted opset {emitted}")


def check_model(model: AnyModel, opset: int | None, outputs: Sequence[str] | int, what: str = "program") -> None:
    """Raises unless a model has the outputs of what was exported, and where it is an ONNX model is valid, at the opset
    asked for.

    Args:
        model: As the converter emitted it.
        opset: That was asked for; None for the converter's own.
        outputs: Names of the outputs; their number where names may be the converter's own.
        what: What was exported, for the message.
    """
    if not isinstance(model, Artefact):
        check_opset(model, opset)
    found = list(output_names(model))
    count = outputs if isinstance(outputs, int) else len(outputs)
    if len(found) != count or (not isinstance(outputs, int) and found != list(outputs)):
        raise ValueError(f"the {what} returns {count} tensors, the graph has {len(found)} outputs")
    if not isinstance(model, Artefact):
        onnx.checker.check_model(model, full_check=True)


def shape_ranges(
    model: AnyModel, names: Sequence[str], shapes: Iterable[Sequence[tuple[int, ...]]]
) -> dict[str, ShapeRange]:
    """The sizes that a dynamic model will be run with, for those of `names` that it has as inputs.

    `shapes` has of each case what is fed to each of `names`; the first case's are the typical ones.
    """
    present = set(input_names(model))
    return {
        name: ShapeRange(
            min=tuple(map(min, zip(*seen, strict=True))),
            opt=seen[0],
            max=tuple(map(max, zip(*seen, strict=True))),
        )
        for name, seen in zip(names, zip(*shapes, strict=True), strict=True)
        if name in present
    }


def named_feeds(model: AnyModel, names: Iterable[str], arrays: Iterable[Array]) -> dict[str, Array]:
    """Graph input → array, without the inputs that the export left out."""
    present = set(input_names(model))
    return {name: array for name, array in zip(names, arrays, strict=True) if name in present}


@dataclass(frozen=True)
class Narrowing:
    """What a backend silently narrows in a case.

    Attributes:
        words: For a person.
        of_integers: Whether it is integers alone: a result is right unless one of them does not fit, so that the
            case is run, and only a wrong result is the narrowing's.
    """

    words: str
    of_integers: bool


def narrowing(name: str, backend: Backend, arrays: Iterable[Array]) -> Narrowing | None:
    """What the backend called `name` narrows of a case's inputs and outputs; None for nothing.

    An integer dtype is narrowed where one of the case's integers does not fit into the narrower one.
    """
    found: dict[str, str] = {}
    unfit: dict[str, str] = {}
    for array in arrays:
        dtype = str(array.dtype)
        narrower = backend.narrows(dtype)
        if narrower and array.dtype.kind not in "iu":
            found[dtype] = narrower
        elif narrower and not _fits(array, narrower):
            unfit[dtype] = narrower
    for narrowed in (found, unfit):
        for dtype, narrower in sorted(narrowed.items()):
            return Narrowing(f"{name} silently computes {dtype} in {narrower}", narrowed is unfit)
    return None


def why_not_right(name: str, backend: Backend, arrays: Iterable[Array], problems: Iterable[OutputProblem]) -> str:
    """Why the wrong result of the backend called `name` need not be right, for a person; "" where it must be.

    It computes in a narrower dtype, or takes subnormal numbers for zeros where its own specification lets it.
    """
    narrowed = narrowing(name, backend, arrays)
    if narrowed:
        return narrowed.words
    allowed = BACKENDS.find(name)[0].flushes
    if allowed and all(problem.kind == FLUSHED for problem in problems):
        return f"{name} takes subnormal numbers for zeros, which {allowed}"
    return ""


def _fits(array: Array, narrower: str) -> bool:
    """Whether all integers of an array are numbers of a narrower dtype, an integer or a floating one."""
    if not array.size:
        return True
    low, high = int(array.min()), int(array.max())
    if narrower in INT_RANGE:
        least, most = INT_RANGE[narrower]
        return least <= low and high <= most
    exact = 2 ** PRECISION[narrower] if narrower in PRECISION else 0
    return -exact <= low and high <= exact


def load_step(
    backend: Backend, model: AnyModel, shapes: Mapping[str, ShapeRange] | None
) -> BackendSession | StepFailure:
    """Load a model, or say why that fails, unless the device is lost."""
    return _attempt(Stage.LOAD, lambda: backend.load(model, shapes))


def run_step(session: BackendSession, feeds: Mapping[str, Array]) -> tuple[Array, ...] | StepFailure:
    """Run a loaded model once, or say why that fails, unless the device is lost."""
    return _attempt(Stage.RUN, lambda: tuple(session.run(feeds)))


def run_again(session: BackendSession, feeds: Mapping[str, Array]) -> Again:
    """Runs a loaded model once more. One that is loaded again may draw the same numbers again."""

    def again() -> Sequence[Array] | None:
        found = run_step(session, feeds)
        return None if isinstance(found, StepFailure) else found

    return again


def outputs_or_failure(
    backend: Backend,
    model: AnyModel,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, ShapeRange] | None = None,
    chosen: Callable[[Sequence[Array], Again], Sequence[Array]] | None = None,
) -> tuple[Array, ...] | StepFailure:
    """What a backend makes of a model: both steps, and with `chosen` what that takes of several runs."""
    session = load_step(backend, model, shapes)
    if isinstance(session, StepFailure):
        return session
    if not session.runnable:
        return StepFailure(Stage.LOAD, Outcome.BUILT, RuntimeError("it cannot run on this machine"))
    outputs = run_step(session, feeds)
    if chosen is None or isinstance(outputs, StepFailure):
        return outputs
    return tuple(chosen(outputs, run_again(session, feeds)))


def outputs_of(
    backend: Backend,
    model: AnyModel,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, ShapeRange] | None = None,
    chosen: Callable[[Sequence[Array], Again], Sequence[Array]] | None = None,
) -> tuple[Array, ...]:
    """The same for a model that is known to run; else the backend's own exception is raised."""
    found = outputs_or_failure(backend, model, feeds, shapes, chosen)
    if isinstance(found, StepFailure):
        raise found.error
    return found


def _attempt(stage: Stage, step: Callable[[], _T]) -> _T | StepFailure:
    try:
        return step()
    except DeviceLost:
        raise
    except Exception as error:
        outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedModel) else Outcome.ERROR
        return StepFailure(stage, outcome, error)
