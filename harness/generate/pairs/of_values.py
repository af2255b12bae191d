"""Conditions of the values of tensors: numbers at which kernels go wrong, patterns, and what faces what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.core import INT_RANGE, PARTS, PRECISION, Argument, Recipe, TensorSpec, values
from harness.generate.pairs.condition import Condition, ConditionKind
from harness.generate.pairs.of_arguments import DIMS, MODES
from harness.generate.pairs.of_tensors import held_tensors, is_index

#: Tensors of a call whose values are looked at.
_TENSORS = 4
#: Tensors of which each is set beside each other.
_FACING = 3
#: Elements above which values are not looked at: so many hold little that fewer do not.
_ELEMENTS = 2**16
_SMALLEST_NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_LARGEST = {dtype: max(v for v in values.special_floats(dtype) if v < np.inf) for dtype in PRECISION}
#: Classes of single elements; a bit each.
FLOAT_CLASSES = ("NaN", "+inf", "-inf", "-0", "subnormal", "largest", "half", "zero", "negative")
INT_CLASSES = ("negative integer", "zero integer", "smallest integer", "largest integer")
#: Of the float classes, those that ordinary data has none of.
_UNUSUAL = 0b111111
_ENDS = 0b1100

Codes = npt.NDArray[np.uint16]


class Held(NamedTuple):
    """What a tensor holds.

    Attributes:
        codes: Per element, a bit for each of `classes` that it is of.
        classes: Classes of elements.
        found: Bits of the classes that some element is of.
        patterns: What is so of all elements together.
    """

    codes: Codes
    classes: tuple[str, ...]
    found: int
    patterns: tuple[str, ...]


@lru_cache(maxsize=4096)
def computed(spec: TensorSpec) -> values.Values:
    """The tensor's values, unrounded; its shape."""
    if isinstance(spec.values, Recipe):
        storage = values.compute(spec.values, spec.dtype, spec.storage_size)
    else:
        storage = np.asarray(spec.values.values, np.float64 if spec.dtype in PRECISION else None)
    steps = tuple(stride * storage.itemsize for stride in spec.strides)
    return np.lib.stride_tricks.as_strided(storage[spec.offset :], spec.shape, steps)


@lru_cache(maxsize=4096)
def held(spec: TensorSpec) -> Held | None:
    """What the tensor holds; None where it holds nothing, or what no class is of."""
    if not 0 < spec.numel <= _ELEMENTS or spec.dtype in PARTS or spec.storage_size > 2 * _ELEMENTS:
        return None
    numbers = computed(spec)
    if numbers.dtype.kind not in ("f" if spec.dtype in PRECISION else "b" if spec.dtype == "bool" else "iu"):
        return None
    if is_index(spec):
        return Held(np.zeros(numbers.shape, np.uint16), (), 0, tuple(_of_indices(numbers.reshape(-1))))
    classes: tuple[str, ...]
    if spec.dtype in PRECISION:
        codes, classes = _of_floats(numbers, spec.dtype), FLOAT_CLASSES
    elif spec.dtype in INT_RANGE:
        codes, classes = _of_integers(numbers, spec.dtype), INT_CLASSES
    elif spec.dtype == "bool":
        return Held(np.zeros(numbers.shape, np.uint16), (), 0, tuple(_of_mask(numbers)))
    else:
        return None
    found = int(np.bitwise_or.reduce(codes, axis=None))
    unusual = _UNUSUAL if classes is FLOAT_CLASSES else _ENDS
    return Held(codes, classes, found, tuple(_patterns(numbers, codes, found, unusual)))


def _of_floats(numbers: values.Values, dtype: str) -> Codes:
    size = np.abs(numbers)
    negative = np.signbit(numbers)
    infinite = size == np.inf
    zero = size == 0
    with np.errstate(invalid="ignore"):
        half = (size < 2.0**52) & (size - np.floor(size) == 0.5)
    tests = (
        np.isnan(numbers),
        infinite & ~negative,
        infinite & negative,
        zero & negative,
        ~zero & (size < _SMALLEST_NORMAL[dtype]),
        size == _LARGEST[dtype],
        half,
        zero & ~negative,
        negative & ~zero & ~infinite,
    )
    codes = np.zeros(numbers.shape, np.uint16)
    for bit, true in enumerate(tests):
        codes |= true.astype(np.uint16) << np.uint16(bit)
    return codes


def _of_integers(numbers: values.Values, dtype: str) -> Codes:
    low, high = INT_RANGE[dtype]
    codes = np.zeros(numbers.shape, np.uint16)
    nothing = np.zeros(numbers.shape, bool)
    smallest = numbers == low if low else nothing
    # Of a domain of few numbers they come in a narrower type.
    largest = numbers == high if high <= np.iinfo(numbers.dtype).max else nothing
    for bit, true in enumerate((numbers < 0, numbers == 0, smallest, largest)):
        codes |= true.astype(np.uint16) << np.uint16(bit)
    return codes


def _patterns(numbers: values.Values, codes: Codes, found: int, unusual: int) -> Iterator[str]:
    if not found & unusual:
        yield "ordinary"
    elif numbers.size > 1 and np.count_nonzero(codes & unusual) == 1:
        yield "one special"
    if numbers.size > 1 and _is_one(numbers):
        yield "all equal"


def _is_one(numbers: values.Values) -> bool:
    return bool((numbers == numbers.flat[0]).all())


def _of_indices(numbers: values.Values) -> Iterator[str]:
    if (numbers < 0).any():
        yield "negative"
    if numbers.size < 2:
        return
    steps = np.diff(numbers)
    distinct = len(np.unique(numbers))
    if distinct == 1:
        yield "all equal"
    if distinct < numbers.size:
        yield "repeated"
    else:
        yield "distinct"
    if (steps < 0).any():
        yield "out of order"
    elif distinct > 1:
        yield "ascending"


def _of_mask(numbers: values.Values) -> Iterator[str]:
    true = int(np.count_nonzero(numbers))
    if not true:
        yield "all false"
    elif true == numbers.size:
        yield "all true"
    else:
        yield "one true" if true == 1 else "mixed"


def value_conditions(arguments: Sequence[tuple[str, Argument]]) -> Iterator[Condition]:
    """Of the values of a call's tensors, each tensor by itself, and beside the numbers of the call."""
    scalars = [
        (name, value)
        for name, value in arguments
        if isinstance(value, int | float) and not isinstance(value, bool)
        if not DIMS.fullmatch(name) and not MODES.fullmatch(name)
    ]
    for place, (name, spec) in enumerate(_looked_at(arguments)):
        found = held(spec)
        if found is None:
            continue
        for word in _words(found.classes, found.found):
            yield Condition(ConditionKind.VALUES, name, f"{name} holds", f"{name} {word}")
        kind = ConditionKind.INDICES if is_index(spec) else ConditionKind.VALUES
        for word in found.patterns:
            yield Condition(kind, name, f"{name} holds", f"{name} {word}")
        if not place and found.classes:
            for scalar, value in scalars:
                if (computed(spec) == value).any():
                    yield Condition(ConditionKind.VALUES, "", f"{name} beside {scalar}", f"{name} equals {scalar}")


class Facing(NamedTuple):
    """Of two tensors that are broadcast together, names of conditions.

    Attributes:
        left: Classes that elements of the first are of.
        right: Those of the second.
        pairs: Those that face each other.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    pairs: frozenset[tuple[str, str]]


def facing(arguments: Sequence[tuple[str, Argument]]) -> Iterator[Facing]:
    """What faces what in each two of the first tensors."""
    tensors = [(name, spec) for name, spec in _looked_at(arguments)[:_FACING] if not is_index(spec)]
    found = [(name, now) for name, spec in tensors if (now := held(spec)) and now.found]
    for (left, a), (right, b) in combinations(found, 2):
        try:
            together = (a.codes.astype(np.uint32) << np.uint32(16)) | b.codes
        except ValueError:
            # They are not broadcast: each element may meet each other.
            continue
        pairs = {
            (f"{left} {one}", f"{right} {other}")
            for code in np.unique(together).tolist()
            for one in _words(a.classes, code >> 16)
            for other in _words(b.classes, code & 0xFFFF)
        }
        yield Facing(
            tuple(f"{left} {one}" for one in _words(a.classes, a.found)),
            tuple(f"{right} {other}" for other in _words(b.classes, b.found)),
            frozenset(pairs),
        )


def _words(classes: Sequence[str], bits: int) -> list[str]:
    return [word for bit, word in enumerate(classes) if bits >> bit & 1]


def _looked_at(arguments: Sequence[tuple[str, Argument]]) -> list[tuple[str, TensorSpec]]:
    """The first tensor of each argument."""
    return [(name, spec) for name, value in arguments for spec in held_tensors(value)[:1]][:_TENSORS]
