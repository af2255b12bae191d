"""The stages of a case from its artefact on: check, load, run, and the excuses of a backend.

They need no PyTorch, since goldens are run with them as well. The stage before is in `harness.pipeline.program`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx

from harness.compare.output_comparison import OutputProblem
from harness.compare.problem_kinds import FLUSHED
from harness.compare.repeated import Again
from harness.compare.verdict import BACKEND, RUNS_AT, UNKNOWN, Outcome, Stage
from harness.core.dtypes import INT_RANGE, PRECISION, Array
from harness.core.route import Route
from harness.core.text import describe_error
from harness.run.artefact import AnyModel, Artefact, input_names, output_names
from harness.run.backend import BACKENDS, Backend, BackendSession, DeviceLost, ShapeRange, UnsupportedModel

_T = TypeVar("_T")


@dataclass(frozen=True)
class StageFailure:
    """Why a case ended before the comparison, in the words of the component that ended it.

    The outcome is `UNSUPPORTED`, `ERROR`, or `BUILT` if the model cannot be run on this machine. `transform` is the
    transform that raised or stored a weight wrongly, "" at any other stage, and `storage` is the fault of the weight.
    """

    stage: Stage
    outcome: Outcome
    error: Exception
    transform: str = ""
    storage: str = ""

    @property
    def blame(self) -> str:
        """The component to blame, as far as the stage tells."""
        if self.stage in (Stage.CONVERT, Stage.TRANSFORM, Stage.CHECK):
            return RUNS_AT[self.stage]
        return BACKEND if self.outcome is Outcome.UNSUPPORTED else UNKNOWN


def emitted_opset(model: AnyModel) -> int | None:
    """Return the version of the default operator set that `model` imports; None if it is not an ONNX model."""
    for imported in () if isinstance(model, Artefact) else model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            return int(imported.version)
    return None


def check_opset(model: onnx.ModelProto, opset: int | None) -> None:
    """Raise `ValueError` if a model has another opset than was asked for."""
    emitted = emitted_opset(model)
    if opset is not None and emitted != opset:
        raise ValueError(f"asked for opset {opset}, the converter emitted opset {emitted}")


def opset_to_check(route: Route) -> int | None:
    """Return the opset that an artefact must be at; None for any. Transforms may change the converter's."""
    return None if route.transforms else route.opset


def check_stage(model: AnyModel, opset: int | None, outputs: Sequence[str] | int) -> StageFailure | None:
    """Check that an artefact has the program's outputs, and that an ONNX model is valid and at its opset.

    Args:
        model: The artefact as the converter emitted it.
        opset: The opset that was asked for; None for the converter's default.
        outputs: The names of the outputs, or the number of a model's outputs, which the converter names itself.
    """
    try:
        if not isinstance(model, Artefact):
            check_opset(model, opset)
        names = list(output_names(model))
        what, count = ("model", outputs) if isinstance(outputs, int) else ("program", len(outputs))
        if len(names) != count or (not isinstance(outputs, int) and names != list(outputs)):
            raise ValueError(f"the {what} returns {count} tensors, the graph has {len(names)} outputs")
        if not isinstance(model, Artefact):
            onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return StageFailure(Stage.CHECK, Outcome.ERROR, error)
    return None


#: ONNX's messages about an operator that does not take a dtype, and about nodes in another order than they are needed.
_HARMLESS = re.compile(r"unsupported type|type inference|typestr|data type|topologically sorted", re.IGNORECASE)


def is_rejected_harmlessly(failure: StageFailure) -> bool:
    """Whether the checker rejects a model for a dtype or the order of its nodes, which a runtime may take anyway.

    Running a graph that is rejected for its attributes or shapes is unsafe: ONNX Runtime's Conv hangs.
    """
    return failure.stage is Stage.CHECK and bool(_HARMLESS.search(describe_error(failure.error)))


def shape_ranges(
    model: AnyModel, names: Sequence[str], shapes: Iterable[Sequence[tuple[int, ...]]]
) -> dict[str, ShapeRange]:
    """Return the sizes that a dynamic model will run with, for those of `names` that are its inputs.

    `shapes` has, for each case, the shapes that are fed to each of `names`; the first case's are the typical ones.
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
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if name in present}
    return in_declared_dtypes(model, feeds)


_NARROW = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}


def in_declared_dtypes(model: AnyModel, feeds: dict[str, Array]) -> dict[str, Array]:
    """Return inputs by name, in the narrower floating dtypes in which a transform makes a model take them."""
    if isinstance(model, Artefact):
        return feeds
    for value in model.graph.input:
        narrow = _NARROW.get(value.type.tensor_type.elem_type)
        array = feeds.get(value.name)
        if narrow is not None and array is not None and PRECISION.get(str(array.dtype), 0) > PRECISION[narrow]:
            with np.errstate(over="ignore"):
                feeds[value.name] = array.astype(narrow)
    return feeds


@dataclass(frozen=True)
class Narrowing:
    """A dtype that a backend silently narrows in a case.
    Attributes:
        text: The dtype and its narrower form, for a person.
        is_of_integers: Whether only integers are narrowed. A result is right then unless one of them does not fit, so
            that the case is run, and the narrowing is blamed for a wrong result.
    """

    text: str
    is_of_integers: bool


def find_narrowing(backend: Backend, arrays: Iterable[Array]) -> Narrowing | None:
    """Return the dtype that a backend narrows in a case's inputs and outputs; None if it narrows none.

    An integer dtype is narrowed if one of the case's integers does not fit into the narrower one.
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
            return Narrowing(f"{backend.name} silently computes {dtype} in {narrower}", narrowed is unfit)
    return None


def excuse_for_problems(backend: Backend, arrays: Iterable[Array], problems: Sequence[OutputProblem]) -> str:
    """Return why a backend's wrong result need not be right, for a person; "" if it must be, or is right.

    The backend computes in a narrower dtype, or takes subnormal numbers for zeros if its own specification allows
    that.
    """
    if not problems:
        return ""
    narrowing = find_narrowing(backend, arrays)
    if narrowing:
        return narrowing.text
    allowed = BACKENDS.find(backend.name)[0].flushes
    if allowed and all(problem.kind == FLUSHED for problem in problems):
        return f"{backend.name} takes subnormal numbers for zeros, which {allowed}"
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


def load_stage(
    backend: Backend, model: AnyModel, shapes: Mapping[str, ShapeRange] | None
) -> BackendSession | StageFailure:
    """Load a model.

    Raises:
        DeviceLost: the device is lost. Any other exception is the failure that is returned.
    """
    return _attempt(Stage.LOAD, lambda: backend.load(model, shapes))


def run_stage(session: BackendSession, feeds: Mapping[str, Array]) -> tuple[Array, ...] | StageFailure:
    """Run a loaded model once; raises as `load_stage`."""
    return _attempt(Stage.RUN, lambda: tuple(session.run(feeds)))


def run_again(session: BackendSession, feeds: Mapping[str, Array]) -> Again:
    """Return a function that runs a loaded model once more.

    A model that is loaded again may draw the same random numbers again.
    """

    def again() -> Sequence[Array] | None:
        found = run_stage(session, feeds)
        return None if isinstance(found, StageFailure) else found

    return again


def _attempt(stage: Stage, step: Callable[[], _T]) -> _T | StageFailure:
    try:
        return step()
    except DeviceLost:
        raise
    except Exception as error:
        outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedModel) else Outcome.ERROR
        return StageFailure(stage, outcome, error)
