"""Is it the same tensor that goes in? Two functions that read a file are compared before any model is blamed.

What explains a difference is looked for in this order: nothing, another order of dimensions, channels in reverse,
a scale and an offset of all numbers or of each channel, and else other values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from harness.core.dtypes import Array
from harness.core.given_values import GivenFileProblem, read_given
from harness.models.facts import take_answer
from harness.pipeline.given_inputs import input_files
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import GivenFiles, NoModel
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.worker import WorkerProcess

#: Numbers of a range of one that count as the same: 8-bit pixels are 4e-3 apart.
_SAME = 1e-4
#: Dimensions of this size may be channels.
_CHANNELS = (3, 4)


@dataclass(frozen=True)
class PreprocessingDifference:
    """How the tensors differ that two functions make of one file.

    Attributes:
        file: The file's name.
        input: The name of the tensor; "" for the only one.
        kind: ``names``, ``dtype``, ``shape``, ``layout``, ``channels``, ``scale``, ``scale-per-channel`` or ``values``.
        first: The names, the dtype or the shape that the first function gives.
        second: The same of the second function.
        scale: Second = scale · first + offset, one number for all or for each channel.
        offset: See `scale`.
        largest: The largest difference, relative to the largest number of the first.
        correlation: The correlation of the numbers; 0 if the shapes differ.
    """

    file: str
    input: str
    kind: str
    first: str = ""
    second: str = ""
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    largest: float = 0.0
    correlation: float = 0.0


@dataclass(frozen=True)
class PreprocessingFound:
    """The differences of the files, at most one for each input of a file, and how many files were read."""

    files: int
    differences: tuple[PreprocessingDifference, ...]


@dataclass(frozen=True)
class PreprocessingTask:
    """Read each file with two functions, in the worker process, since both are a user's code."""

    handler: ClassVar[str] = "harness.models.preprocessing:carry_out"

    given: GivenFiles
    deployed: str


def compare_preprocessing(given: GivenFiles, deployed: str, supervisor: Supervisor) -> PreprocessingFound:
    """Return how the tensors of two functions differ.

    Args:
        given: The files, and the function that the model was made for.
        deployed: The other function.
        supervisor: Runs both.

    Raises:
        ModelProblem: a file cannot be read with one of them.
    """
    messages = supervisor.serve(PreprocessingTask(given, deployed))
    found: PreprocessingFound = take_answer(messages, PreprocessingFound, "reading the inputs")
    return found


def carry_out(task: PreprocessingTask, worker: WorkerProcess) -> None:
    """Compare both functions on each file, and send the differences."""
    try:
        files = input_files(Path(task.given.path))
        differences = [difference for file in files for difference in _of_file(file, task)]
    except (GivenFileProblem, ModelProblem) as problem:
        worker.send(NoModel(str(problem)))
    else:
        worker.send(PreprocessingFound(len(files), tuple(differences)))


def _of_file(file: Path, task: PreprocessingTask) -> Iterator[PreprocessingDifference]:
    first, second = (read_given(str(file), function) for function in (task.given.function, task.deployed))
    if first.keys() != second.keys():
        yield PreprocessingDifference(file.name, "", "names", ", ".join(first), ", ".join(second))
        return
    for name in first:
        difference = tensor_difference(first[name], second[name], file.name, name)
        if difference is not None:
            yield difference


def tensor_difference(a: Array, b: Array, file: str = "", name: str = "") -> PreprocessingDifference | None:
    """Return how a tensor differs from another one; None if they are the same up to roundings."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    size = float(np.abs(x).max(initial=0.0)) or 1.0
    for order in itertools.permutations(range(x.ndim)):
        if x.transpose(order).shape != y.shape or not _is_same(x.transpose(order), y, size):
            continue
        if order != tuple(range(x.ndim)):
            return PreprocessingDifference(
                file, name, "layout", str([*a.shape]), f"{[*b.shape]}, dimensions {[*order]}"
            )
        if a.dtype != b.dtype:
            return PreprocessingDifference(file, name, "dtype", str(a.dtype), str(b.dtype))
        return None
    if x.shape != y.shape:
        return PreprocessingDifference(file, name, "shape", str([*a.shape]), str([*b.shape]))
    largest = float(np.abs(y - x).max(initial=0.0)) / size
    with np.errstate(all="ignore"):
        correlation = float(np.nan_to_num(np.corrcoef(x.reshape(-1), y.reshape(-1))[0, 1])) if x.size > 1 else 0.0
    common = {"largest": largest, "correlation": correlation}
    channels = [axis for axis, count in enumerate(x.shape) if count in _CHANNELS]
    for axis in channels:
        if _is_same(np.flip(x, axis), y, size):
            return PreprocessingDifference(file, name, "channels", **common)  # type: ignore[arg-type]
    candidates: list[tuple[str, int | None]] = [("scale", None), *(("scale-per-channel", axis) for axis in channels)]
    for kind, along in candidates:
        fitted = _affine(x, y, along)
        if fitted is not None:
            scale, offset = fitted
            return PreprocessingDifference(file, name, kind, "", "", scale, offset, largest, correlation)
    return PreprocessingDifference(file, name, "values", **common)  # type: ignore[arg-type]


def _is_same(x: Array, y: Array, size: float) -> bool:
    return bool((np.abs(x - y) <= _SAME * size).all())


def _affine(x: Array, y: Array, axis: int | None) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return scale and offset by which numbers follow from others, for all or along an axis; None if they do not."""
    parts: Sequence[tuple[Array, Array]] = [(x, y)]
    if axis is not None:
        parts = [(x.take(i, axis), y.take(i, axis)) for i in range(x.shape[axis])]
    scales, offsets = [], []
    for u, v in parts:
        spread = float(u.std())
        if spread == 0:
            return None
        scale = float(((u - u.mean()) * (v - v.mean())).mean()) / spread**2
        offset = float(v.mean() - scale * u.mean())
        if not _is_same(scale * u + offset, v, float(np.abs(v).max(initial=0.0)) or 1.0):
            return None
        scales.append(scale)
        offsets.append(offset)
    return tuple(scales), tuple(offsets)
