"""The conditions of a call, and which two of them make a pair.

A condition is one fact about the structure of a call: a dtype, a rank, a layout, a flag, an omitted argument, a
window larger than its input. Most defects that a single condition does not show need two of them at once, so
pairs measure how much of an operator's space was tried.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from harness.core import values
from harness.core.captured_values import Values
from harness.core.dtypes import PARTS, PRECISION, WIDE_UNSIGNED, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, Recipe, TensorSpec
from harness.generate.scalars import ScalarClass, scalar_fit


class ConditionKind(StrEnum):
    """The subject of a condition; reports group conditions by it."""

    DTYPE = "dtype"
    PROMOTION = "promotion"
    RANK = "rank"
    SIZE = "size"
    LAYOUT = "layout"
    SHAPES = "shapes"
    PRESENCE = "presence"
    ATTRIBUTE = "attribute"
    SPELLING = "spelling"
    EXACTNESS = "exactness"
    DIMS = "dims"
    WINDOW = "window"


#: Words of names that `make_pair` asks for.
_RANK, _EMPTY, _ONE_ELEMENT = "rank", "size 0", "one element"
_OF_TENSORS = frozenset(
    (
        ConditionKind.DTYPE,
        ConditionKind.PROMOTION,
        ConditionKind.RANK,
        ConditionKind.SIZE,
        ConditionKind.LAYOUT,
        ConditionKind.SHAPES,
    )
)


class Condition(NamedTuple):
    """One condition.

    Attributes:
        kind: Group of the condition.
        subject: The argument concerned; "" for the whole call.
        about: Key of the alternatives: a call has exactly one of the conditions that share it.
        name: Readable name, unique within an operator: ``self rank 0``, ``keepdim=True``. If
            `harness.coverage.points` names the same point, the name is the same.
    """

    kind: ConditionKind
    subject: str
    about: str
    name: str


def make_pair(a: Condition, b: Condition) -> bool:
    """Whether two conditions say more together than each alone, and neither follows from the other."""
    if a.about == b.about:
        return False
    if a.subject != b.subject or not a.subject:
        return True
    if ConditionKind.PRESENCE in (a.kind, b.kind) or not (a.kind in _OF_TENSORS and b.kind in _OF_TENSORS):
        # The argument's type follows from its value.
        return False
    # A single number has no layout.
    names, kinds = {a.name, b.name}, {a.kind, b.kind}
    if f"{a.subject} {_RANK} 0" in names and kinds & {ConditionKind.SIZE, ConditionKind.LAYOUT}:
        return False
    few = {f"{a.subject} {size}" for size in (_EMPTY, _ONE_ELEMENT)}
    return not (few & names and ConditionKind.LAYOUT in kinds)


_DIMS = re.compile(r"([123])d")


def per_dim(value: Argument, dims: int, default: int) -> tuple[int, ...]:
    """Return an argument that gives one number per dimension, or one for all."""
    numbers = value if isinstance(value, tuple) else (value,)
    whole = tuple(n for n in numbers if isinstance(n, int))
    if not whole or len(whole) < len(numbers):
        return (default,) * dims
    return whole * dims if len(whole) == 1 else whole


def window(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the sizes of the input and the reach of a window, per dimension."""
    given = dict(call.arguments)
    source = next(call.tensors(), None)
    weight, kernel = given.get("weight"), given.get("kernel_size")
    if isinstance(weight, TensorSpec):
        extents = weight.shape[2:]
    else:
        extents = per_dim(kernel, len(kernel) if isinstance(kernel, tuple) else 1, 1)
    if source is None or not extents or len(source.shape) <= len(extents):
        return None
    if not isinstance(weight, TensorSpec) and len(extents) == 1:
        named = _DIMS.search(call.overload)
        extents = extents * (int(named[1]) if named else 1)
    dilation = per_dim(given.get("dilation"), len(extents), 1)
    reach = tuple((k - 1) * by + 1 for k, by in zip(extents, dilation, strict=False))
    return source.shape[-len(reach) :], reach


def targets(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the sizes of the input and the requested sizes, per dimension."""
    source, wanted = next(call.tensors(), None), dict(call.arguments).get("output_size")
    if source is None or not isinstance(wanted, tuple) or len(source.shape) < len(wanted) or not wanted:
        return None
    return source.shape[-len(wanted) :], tuple(n for n in wanted if isinstance(n, int))


def window_conditions(call: Invocation) -> Iterator[Condition]:
    """Yield the conditions of a call with windows, or with an output size."""
    given = dict(call.arguments)
    if "kernel_size" in given or ("weight" in given and "padding" in given):
        found = window(call)
        if found is not None:
            yield from _size_conditions(given, *found)
    sizes = targets(call)
    if sizes is not None:
        yield _condition("output size", _beside(*sizes))


def _size_conditions(given: dict[str, Argument], sizes: tuple[int, ...], reach: tuple[int, ...]) -> Iterator[Condition]:
    pairs = list(zip(sizes, reach, strict=False))
    larger = any(k > n > 0 for n, k in pairs)
    whole = any(k == n for n, k in pairs)
    word = "larger than" if larger else "as large as" if whole else "smaller than"
    yield _condition("window", f"window {word} input")
    # If no stride is given, pooling takes the window's size and a convolution takes 1.
    default = 0 if "kernel_size" in given else 1
    stride = per_dim(given.get("stride"), len(reach), default)
    steps = [s or k for s, k in zip(stride, reach, strict=False)]
    over = any(s > k for s, k in zip(steps, reach, strict=False))
    overlap = any(s < k for s, k in zip(steps, reach, strict=False))
    word = "larger than" if over else "smaller than" if overlap else "as large as"
    yield _condition("stride", f"stride {word} window")
    padding = given.get("padding")
    around = per_dim(padding, len(reach), 0)
    rests = [(n + 2 * p - k) % s for (n, k), s, p in zip(pairs, steps, around, strict=False) if s > 0]
    yield _condition("end", "last window cut" if any(rests) else "windows fit")


def _beside(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    pairs = [(n, m) for n, m in zip(sizes, wanted, strict=False) if n > 0 and m > 0]
    if all(n == m for n, m in pairs):
        return "output as large as input"
    if any(m > n for n, m in pairs):
        return "output larger than input"
    return "output does not divide input" if any(n % m for n, m in pairs) else "output divides input"


def _condition(about: str, name: str) -> Condition:
    return Condition(ConditionKind.WINDOW, "", f"windows {about}", name)


#: Names of integers that name a mode.
MODES = re.compile(r"reduction|mode|interpolation_mode|padding_mode")
#: Names of integers that name dimensions.
DIMS = re.compile(r"dim\d?|dims|axis\d?|\w+_dim|dims?_\w+|source|destination")
#: How well a dtype holds a number, the best first.
_FITS = (ScalarClass.PLAIN, ScalarClass.ROUNDED, ScalarClass.BEYOND, ScalarClass.NEGATIVE)


def argument_conditions(call: Invocation) -> Iterator[Condition]:
    """Yield the conditions of each argument that holds no tensor."""
    first = next(call.tensors(), None)
    dtype = call.dtype
    for name, value in call.arguments:
        if isinstance(value, TensorSpec) or _holds_tensors(value):
            yield presence(name, "given")
        elif value is None:
            yield presence(name, "None")
        elif DIMS.fullmatch(name) and (numbers := _whole(value)) is not None:
            yield from _dims_conditions(name, value, numbers, first)
        elif isinstance(value, tuple):
            yield from _list_conditions(name, value)
        elif isinstance(value, bool | str | Enumerated) or MODES.fullmatch(name):
            shown = value.name if isinstance(value, Enumerated) else repr(value)
            yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name}={shown}")
            if isinstance(value, bool):
                yield Condition(ConditionKind.SPELLING, name, f"{name} spelled", f"{name} bool")
        elif isinstance(value, int | float | complex):
            yield from _number_conditions(name, value, dtype)


def presence(name: str, word: str) -> Condition:
    """Return the condition that an argument is ``given``, ``omitted`` or ``None``."""
    return Condition(ConditionKind.PRESENCE, name, name, f"{name} {word}")


def _holds_tensors(value: Argument) -> bool:
    return isinstance(value, tuple) and any(isinstance(element, TensorSpec) for element in value)


def _whole(value: Argument) -> tuple[int, ...] | None:
    numbers = value if isinstance(value, tuple) else (value,)
    whole = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
    return whole if len(whole) == len(numbers) else None


def _dims_conditions(
    name: str, value: Argument, numbers: Sequence[int], first: TensorSpec | None
) -> Iterator[Condition]:
    """Yield conditions on the signs, the values and the number of dims."""
    shape = first.shape if first is not None else ()
    if isinstance(value, tuple):
        many = "empty" if not numbers else "one" if len(numbers) == 1 else "several"
        if len(numbers) == len(shape) > 1:
            many = "all"
        yield Condition(ConditionKind.DIMS, name, name, f"{name} {many}")
        if len(numbers) > 1:
            ordered = [d % len(shape) if shape else d for d in numbers]
            word = "in order" if ordered == sorted(ordered) else "out of order"
            yield Condition(ConditionKind.DIMS, name, f"{name} order", f"{name} {word}")
    if not numbers:
        return
    signs = {d < 0 for d in numbers}
    sign = "of both signs" if len(signs) > 1 else "negative" if True in signs else "positive"
    yield Condition(ConditionKind.DIMS, name, f"{name} sign", f"{name} {sign}")
    places = [d % len(shape) for d in numbers if -len(shape) <= d < len(shape)]
    if places:
        place = places[0]
        last = len(shape) - 1
        word = "only" if not last else "last" if place == last else "first" if not place else "inner"
        yield Condition(ConditionKind.DIMS, name, f"{name} place", f"{name} is {word}")
        least = min(shape[d] for d in places)
        # These two, by the extent of the dim, follow the size of the tensor.
        yield Condition(ConditionKind.SIZE, "", f"{name} length", f"{name} of size {min(least, 2)}{'+' * (least > 1)}")


def _list_conditions(name: str, value: tuple[Argument, ...]) -> Iterator[Condition]:
    numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(value) or not value:
        shown = ", ".join(repr(v) for v in value[:4])
        yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name}=[{shown}]" if value else f"{name} empty")
        return
    if any(n < 0 for n in numbers):
        word = "negative"
    elif len(set(numbers)) > 1:
        word = "with 0" if 0 in numbers else "uneven"
    elif numbers[0] in (0, 1):
        word = "zero" if not numbers[0] else "one"
    else:
        word = "below one" if numbers[0] < 1 else "even"
    yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name} {word}")
    if len(value) > 1 or word not in ("zero", "one"):
        several = "one number" if len(value) == 1 else "several numbers"
        yield Condition(ConditionKind.ATTRIBUTE, name, f"{name} length", f"{name} {several}")


def _number_conditions(name: str, value: int | float | complex, dtype: str) -> Iterator[Condition]:
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    shown = _complex_class(value) if isinstance(value, complex) else _class_of(value)
    yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name} {shown}")
    yield Condition(ConditionKind.SPELLING, name, f"{name} spelled", f"{name} {type(value).__name__}")
    # Every dtype can hold 0 and 1.
    telling = [part for part in parts if part not in (0, 1)]
    if telling and all(map(math.isfinite, parts)):
        fit = max((scalar_fit(part, dtype) for part in telling), key=_FITS.index)
        word = "exact in the dtype" if fit is ScalarClass.PLAIN else str(fit)
        yield Condition(ConditionKind.EXACTNESS, name, f"{name} in the dtype", f"{name} {word}")


def _complex_class(value: complex) -> str:
    """Return the class of a complex number; a conversion may lose each of its parts by itself."""
    if cmath.isnan(value):
        return "with a part NaN"
    if cmath.isinf(value):
        return "with a part infinite"
    if not value:
        return "zero"
    return "of both parts" if value.real and value.imag else "real" if value.real else "imaginary"


def _class_of(value: int | float) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+inf" if value > 0 else "-inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "zero"
    return "one" if value == 1 else "negative" if value < 0 else "positive"


#: Domains whose values name places along a dimension; their first parameter is its size.
INDEX_DOMAINS = ("index", "signed_index", "unique", "index_or")
#: Lengths from here on run through more than one vector of a kernel.
_LONG = 64
#: Ranks from here on count as one.
_RANKS = 4
#: Lists of tensors are distinguished by length up to this length.
_SEVERAL = 3


def is_index(spec: TensorSpec) -> bool:
    """Whether the tensor names places."""
    return isinstance(spec.values, Recipe) and spec.values.domain[0] in INDEX_DOMAINS


def held_tensors(argument: Argument) -> tuple[TensorSpec, ...]:
    """Return the tensors of an argument, in a list or alone."""
    elements = argument if isinstance(argument, tuple) else (argument,)
    return tuple(element for element in elements if isinstance(element, TensorSpec))


def tensor_conditions(arguments: Sequence[tuple[str, Argument]]) -> Iterator[Condition]:
    """Yield the conditions of all tensors of a call; a list has those of its first tensor and of differences."""
    first: TensorSpec | None = None
    for name, argument in arguments:
        held = held_tensors(argument)
        if isinstance(argument, tuple) and held:
            yield from _tensor_list_conditions(name, argument, held)
        for spec in held[:1]:
            yield from _layout_condition(name, spec)
            if first is None:
                first = spec
                yield dtype_condition(spec.dtype)
                rank = len(spec.shape)
                shown = str(rank) if rank < _RANKS else f"{_RANKS}+"
                yield Condition(ConditionKind.RANK, name, f"{name} rank", f"{name} {_RANK} {shown}")
                yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} {_size_class(spec)}")
            else:
                yield from _difference_conditions(name, spec, first)


def _tensor_list_conditions(
    name: str, argument: tuple[Argument, ...], held: Sequence[TensorSpec]
) -> Iterator[Condition]:
    length = min(len(argument), _SEVERAL)
    yield Condition(ConditionKind.ATTRIBUTE, "", f"{name} length", f"{length} {name}")
    if len(held) < len(argument):
        yield Condition(ConditionKind.ATTRIBUTE, "", f"{name} gaps", f"None among {name}")
    if len(held) > 1:
        several = len({spec.dtype for spec in held}) > 1
        word = "several dtypes" if several else "one dtype"
        yield Condition(ConditionKind.PROMOTION, "", f"{name} dtypes", f"{name} of {word}")
        word = "several shapes" if len({spec.shape for spec in held}) > 1 else "one shape"
        yield Condition(ConditionKind.SHAPES, "", f"{name} shapes", f"{name} of {word}")
        if any(not spec.numel for spec in held):
            word = "all" if all(not spec.numel for spec in held) else "some"
            yield Condition(ConditionKind.SIZE, "", f"{name} empty", f"{word} {name} empty")


def _layout_condition(name: str, spec: TensorSpec) -> Iterator[Condition]:
    """Yield the condition on the tensor's memory layout."""
    repeats = any(n > 1 and not step for n, step in zip(spec.shape, spec.strides, strict=True))
    if repeats:
        word = "expanded"
    elif not spec.is_contiguous:
        word = "non-contiguous"
    else:
        word = "offset" if spec.offset else "contiguous"
    yield Condition(ConditionKind.LAYOUT, name, f"{name} layout", f"{name} {word}")


def _difference_conditions(name: str, spec: TensorSpec, first: TensorSpec) -> Iterator[Condition]:
    """Yield the conditions on differences in dtype and shape from the first tensor."""
    if is_index(spec):
        word = spec.dtype
    elif spec.dtype == first.dtype:
        word = "of the first dtype"
    else:
        kind = _kind_of(spec.dtype)
        word = f"other {kind}" if kind == _kind_of(first.dtype) else kind
    yield Condition(ConditionKind.PROMOTION, name, f"{name} dtype", f"{name} {word}")
    yield Condition(ConditionKind.SHAPES, name, f"{name} shape", f"{name} {_beside_first(spec.shape, first.shape)}")
    if not spec.numel or not first.numel:
        word = "empty" if not spec.numel else "not empty beside an empty one"
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} {word}")
    elif spec.numel == 1:
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} {_ONE_ELEMENT}")
    else:
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} several elements")


def _beside_first(shape: tuple[int, ...], first: tuple[int, ...]) -> str:
    if shape == first:
        return "of the first shape"
    if not shape:
        return "rank 0 beside a higher one"
    tails = list(zip(reversed(shape), reversed(first), strict=False))
    if not all(n == m or 1 in (n, m) for n, m in tails):
        return "of another shape"
    lacks = len(shape) < len(first) or any(n == 1 != m for n, m in tails)
    exceeds = len(first) < len(shape) or any(m == 1 != n for n, m in tails)
    return "broadcast both ways" if lacks and exceeds else "broadcast" if lacks else "larger than the first"


def _size_class(spec: TensorSpec) -> str:
    if 0 in spec.shape:
        return _EMPTY
    if spec.numel == 1:
        return _ONE_ELEMENT
    if max(spec.shape) >= _LONG:
        return "long"
    return "size 1" if 1 in spec.shape else "ordinary size"


def dtype_condition(dtype: str) -> Condition:
    """Return the condition on the main dtype of a call. The wide unsigned integers, of which few are drawn, share
    one condition; so do the complex numbers."""
    word = "wide unsigned" if dtype in WIDE_UNSIGNED else "complex" if dtype in PARTS else dtype
    return Condition(ConditionKind.DTYPE, "", "main dtype", f"dtype {word}")


def _kind_of(dtype: str) -> str:
    if dtype in PARTS:
        return "complex"
    return "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"


@lru_cache(maxsize=4096)
def computed(spec: TensorSpec) -> Values:
    """Compute the tensor's values, unrounded, and its shape."""
    if isinstance(spec.values, Recipe):
        storage = values.compute(spec.values, spec.dtype, spec.storage_size)
    else:
        storage = np.asarray(spec.values.values, np.float64 if spec.dtype in PRECISION else None)
    steps = tuple(stride * storage.itemsize for stride in spec.strides)
    return np.lib.stride_tricks.as_strided(storage[spec.offset :], spec.shape, steps)
