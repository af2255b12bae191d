"""Find a node's possible results for NaN if its operator's text is silent: the results of some reading of the text.

An operator that orders its elements or chooses among them is silent on NaN, which has no place in the order. Every
place that is the same for all elements is a reading: NaN is the greatest of all numbers, or the least; ``Unique`` may
count all NaN as one element or each as one; and ``MaxPool`` may leave NaN out as it does padding, so that the maximum
of a window of NaN alone is that of nothing, which is not defined either. A result that none of the readings gives, or
that depends on where a NaN lies, is wrong by any of them.

1. The numbers are replaced by their ranks, which keep their order: 0 stays 0, negative numbers get negative ranks. NaN
   gets a rank of its own by the reading.
2. The node's definition is evaluated on the ranks, and the ranks in its results are replaced by the numbers.
3. The same is done with a NaN brought to the front, and with the reverse of that. A reading fits if its results equal
   the backend's all three times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.core.dtypes import PRECISION, Array
from harness.pipeline.nodes.definition import Definition, Undefined, WhyUndefined

#: Operators whose results are elements of their inputs, zeros or places, chosen by the order of the elements.
ORDERING = frozenset(
    {
        *("Max", "Min", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"),
        *("MaxPool", "GlobalMaxPool", "Relu", "Unique"),
    }
)
#: Elements above which nothing is ranked.
_MOST = 20_000
#: Runs the node with other inputs in the backend; returns None if that fails.
Rerun = Callable[[Definition], "Sequence[Array] | None"]


@dataclass(frozen=True)
class _Reading:
    """The place of NaN in the order, whether each NaN is an element of its own, and whether NaN is none."""

    is_greatest: bool
    are_apart: bool = False
    is_left_out: bool = False


def fits_a_reading(
    definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Collection[int] | None = None
) -> bool:
    """Return whether some reading gives a backend's results, whatever the order of the elements.

    Also true if that is unknown: for other operators, or if the definition cannot be evaluated.

    Args:
        definition: The definition of the node, with its inputs.
        got: The backend's results for these.
        rerun: Runs the node in the backend with the inputs of another definition.
        outputs: The indices of the results in question; None for all.
    """
    if definition.operator not in ORDERING or not definition.step.is_single:
        return True
    # Numbers in constants are ranked as well, so that they are fed.
    kept = {
        n: t
        for n, t in definition.graph.constants.items()
        if str(definition.graph.constant_values[n].dtype) not in PRECISION
    }
    given = replace(definition, graph=replace(definition.graph, constants=kept))
    front = replace(given, inputs={name: _bring_nan_forward(array) for name, array in given.inputs.items()})
    back = replace(given, inputs={name: _reversed(array) for name, array in front.inputs.items()})
    answers = [(given, got)]
    for arranged in (front, back):
        answer = rerun(arranged)
        if answer is None:
            return True
        answers.append((arranged, answer))
    try:
        return any(
            all(_are_equal(_results(arranged, reading), answer, reading, outputs) for arranged, answer in answers)
            for reading in _readings(definition.operator)
        )
    except Undefined:
        return True


def _readings(operator: str) -> Iterator[_Reading]:
    for is_greatest in (True, False):
        yield _Reading(is_greatest)
        if operator == "Unique":
            yield _Reading(is_greatest, are_apart=True)
    if operator == "MaxPool":
        yield _Reading(is_greatest=False, is_left_out=True)


def _results(definition: Definition, reading: _Reading) -> tuple[Array, ...]:
    """Return the definition's results by a reading; raises `Undefined`."""
    ranks = _ranks(list(definition.inputs.values()))
    coded = {name: _coded(array, ranks, reading) for name, array in definition.inputs.items()}
    results = replace(definition, inputs=coded).own
    numbers = {rank: number for number, rank in ranks.items()}
    return tuple(_decoded(array, numbers) if str(array.dtype) in PRECISION else array for array in results)


def _ranks(arrays: Sequence[Array]) -> dict[float, int]:
    """Return number → rank; raises `Undefined` for too many elements, or if the dtype has no room for the ranks."""
    floats = [a.astype(np.float64).reshape(-1) for a in arrays if str(a.dtype) in PRECISION]
    digits = min((PRECISION[str(a.dtype)] for a in arrays if str(a.dtype) in PRECISION), default=24)
    numbers = np.unique(np.concatenate([*floats, np.zeros(1)]))
    numbers = numbers[~np.isnan(numbers)]
    nans = sum(int(np.isnan(a).sum()) for a in floats)
    if len(numbers) + nans + 1 >= 2**digits or sum(a.size for a in floats) > _MOST:
        raise Undefined(WhyUndefined.TOO_MANY_NUMBERS, "the node")
    first = int(np.searchsorted(numbers, 0.0))
    return {float(number): place - first for place, number in enumerate(numbers)}


def _coded(array: Array, ranks: Mapping[float, int], reading: _Reading) -> Array:
    if str(array.dtype) not in PRECISION:
        return array
    flat = array.astype(np.float64).reshape(-1)
    beyond = max(ranks.values()) + 1 if reading.is_greatest else min(ranks.values()) - 1
    step = 0 if not reading.are_apart else 1 if reading.is_greatest else -1
    codes, nans = [], 0
    for number in flat:
        if np.isnan(number):
            codes.append(beyond + step * nans)
            nans += 1
        else:
            codes.append(ranks[float(number)])
    return np.array(codes, np.float64).reshape(array.shape).astype(array.dtype)


def _decoded(array: Array, numbers: Mapping[int, float]) -> Array:
    """Replace ranks by their numbers; any other value is NaN's rank, or the result of an empty choice."""
    wide = array.astype(np.float64)
    flat = [n if np.isinf(n) or np.isnan(n) else numbers.get(round(n), np.nan) for n in wide.reshape(-1).tolist()]
    return np.array(flat, np.float64).reshape(array.shape).astype(array.dtype)


def _bring_nan_forward(array: Array) -> Array:
    """Return the elements moved along each axis so that the first NaN is the first element."""
    if str(array.dtype) not in PRECISION or not array.ndim or not np.isnan(array).any():
        return array
    nans = np.argwhere(np.isnan(array))
    return np.roll(array, tuple(-nans[0]), tuple(range(array.ndim)))


def _reversed(array: Array) -> Array:
    """Return the elements in reverse order along each axis; an array of integers holds options, and stays."""
    return np.ascontiguousarray(np.flip(array)) if str(array.dtype) in PRECISION else array


def _are_equal(
    results: Sequence[Array], got: Sequence[Array], reading: _Reading, outputs: Collection[int] | None
) -> bool:
    """Whether results are equal; the zeros are one number, and the maximum of nothing is any."""
    pairs = list(zip(results, got, strict=False))
    if any(r.shape != g.shape for r, g in pairs):
        return False
    wide = [(r.astype(np.float64), g.astype(np.float64)) for r, g in pairs]
    # A maximum and its place are nothing's together.
    of_nothing = np.isnan(wide[0][0]) if reading.is_left_out and wide else np.False_
    asked = [pair for i, pair in enumerate(wide) if outputs is None or i in outputs]
    return all(bool(((r == g) | (np.isnan(r) & np.isnan(g)) | of_nothing).all()) for r, g in asked)
