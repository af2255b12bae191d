"""The points of operators' argument spaces, by family: arguments, dtypes, shapes, values and windows.

A point of an operator's argument space, and the registry of the families that name points.

A family looks at an operator's schema and at some of its draws and names the points that are worth
reaching. Whether a point that no draw has hit could be hit is not for the family to say: it offers
variants of drawn calls that hit the point, and PyTorch is asked whether it takes one
(`harness.coverage.survey`).

Points of arguments that are not tensors: bools, optionals, words, modes, dims, dtypes, numbers.

Points of dtypes: each that PyTorch takes, and pairs that it promotes.

Points of shapes and layouts: ranks, sizes, strides, broadcasting, sums of many terms.

Points of values: the classes of numbers at which kernels go wrong, and the places that indices name.

Points of windows that slide: larger than their input, striding over more than themselves, and outputs
whose sizes do not divide their inputs'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, islice, permutations, product
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from harness.core.dtypes import ALL, INT_RANGE, PRECISION, WIDE_UNSIGNED, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.core.styles import STYLES, special_floats
from harness.core.tensors import overload
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.pairs.conditions import DIMS, MODES, computed, is_index, per_dim, targets, window
from harness.generate.promotion import REPRESENTATIVES, Promotion, kind_of_dtype


@dataclass(frozen=True, slots=True)
class Acceptance:
    """PyTorch's answer to a call.

    Attributes:
        refusal: Its message; "" where it took the call, and ``died`` or ``hung`` where the process did.
        shapes: Of the output tensors.
    """

    refusal: str
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def taken(self) -> bool:
        """Whether PyTorch took the call."""
        return not self.refusal


def _always(base: Acceptance, answer: Acceptance) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Point:
    """Something that a call may do.

    Attributes:
        name: Unique within an operator: ``keepdim=True``, ``self rank 0``.
        hit: Whether a call does it.
        variants: Calls like a drawn one that do it, PyTorch willing; none where this one has none.
        confirm: Whether PyTorch's answer to a variant, given its answer to the drawn call, means what the
            name says (that a shape was broadcast, and not merely taken).
    """

    name: str
    hit: Callable[[Invocation], bool]
    variants: Callable[[Invocation], Iterable[Invocation]]
    confirm: Callable[[Acceptance, Acceptance], bool] = _always


@dataclass(frozen=True)
class SurveyedOperator:
    """An operator as families see it: its dotted name and some calls that PyTorch takes."""

    overload: str
    samples: tuple[Invocation, ...]

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """PyTorch's schema."""
        return tuple(overload(self.overload)._schema.arguments)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the arguments that hold tensors, alone or in lists, in some sample."""
        return tuple(a.name for a in self.arguments if any(specs(s, a.name) for s in self.samples))

    @cached_property
    def single_tensors(self) -> tuple[str, ...]:
        """Those that are one tensor."""
        return tuple(a.name for a in self.arguments if a.name in self.tensors and "List" not in str(a.type))


_CONSTANTS = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}

PointFamily: TypeAlias = Callable[[SurveyedOperator], Iterator[Point]]

#: Group of points → its family, filled at import.
FAMILIES: dict[str, PointFamily] = {}


def family(group: str) -> Callable[[PointFamily], PointFamily]:
    """Decorate the family of `group`, a word for reports."""
    return lambda function: FAMILIES.setdefault(group, function)


def kind_of(argument: Any) -> str:
    """A schema argument's type without ``Optional``: ``Tensor``, ``int``, ``List[int]``, ``dtype``."""
    # The constants that schemas speak of are integers to TorchScript, whose types `type` gives.
    for constant, kind in _CONSTANTS.items():
        if constant in str(argument.real_type):
            return kind
    kind = str(argument.type)
    return kind[len("Optional[") : -1] if kind.startswith("Optional[") else kind


def value_of(invocation: Invocation, name: str) -> Argument:
    """The argument as given, None where it is omitted."""
    return dict(invocation.arguments).get(name)


def specs(invocation: Invocation, name: str) -> tuple[TensorSpec, ...]:
    """The tensors of an argument, in a list or alone."""
    argument = value_of(invocation, name)
    elements = argument if isinstance(argument, tuple) else (argument,)
    return tuple(element for element in elements if isinstance(element, TensorSpec))


def with_argument(subject: SurveyedOperator, invocation: Invocation, name: str, value: Argument) -> Invocation:
    """A copy with the argument given as `value`."""
    given = {**dict(invocation.arguments), name: value}
    return replace(invocation, arguments=tuple((a.name, given[a.name]) for a in subject.arguments if a.name in given))


def without_argument(invocation: Invocation, name: str) -> Invocation:
    """A copy with the argument omitted."""
    return replace(invocation, arguments=tuple((n, a) for n, a in invocation.arguments if n != name))


def with_specs(invocation: Invocation, names: Sequence[str], change: Callable[[TensorSpec], TensorSpec]) -> Invocation:
    """A copy in which the tensors of the arguments `names` are replaced by `change` of them."""

    def changed(argument: Argument) -> Argument:
        if isinstance(argument, TensorSpec):
            return change(argument)
        if isinstance(argument, tuple):
            return tuple(changed(element) for element in argument)
        return argument

    return replace(invocation, arguments=tuple((n, changed(a) if n in names else a) for n, a in invocation.arguments))


#: Every word that some ATen operator takes as an argument; PyTorch is asked which ones take which.
WORDS = (
    *("none", "mean", "sum", "prod", "amax", "amin", "max", "min"),
    *("trunc", "floor", "tanh", "valid", "same", "left", "right", "ij", "xy"),
    *("linear", "lower", "higher", "midpoint", "nearest", "bilinear", "bicubic", "trilinear", "area"),
    *("constant", "reflect", "replicate", "circular", "zeros", "border", "reflection"),
    *("fro", "nuc", "reduced", "complete", "r", "L", "U", "backward", "ortho", "forward"),
    *("gelsd", "gels", "gelsy", "gelss", "sum_to_size", "nearest-exact"),
)


def _effective(argument: Any, invocation: Invocation) -> Any:
    """The value that the call uses: the default where it is omitted."""
    default = argument.default_value if argument.has_default_value() else None
    return dict(invocation.arguments).get(argument.name, default)


def _equals(argument: Any, value: object, invocation: Invocation) -> bool:
    found = _effective(argument, invocation)
    return type(found) is type(value) and found == value


@family("bools")
def bools(subject: SurveyedOperator) -> Iterator[Point]:
    """Each bool both ways."""
    for argument in subject.arguments:
        if kind_of(argument) == "bool":
            for value in (True, False):
                yield _settable(subject, argument, value)


def _settable(subject: SurveyedOperator, argument: Any, value: Argument) -> Point:
    shown = value.name if isinstance(value, Enumerated) else repr(value)
    return Point(
        name=f"{argument.name}={shown}",
        hit=partial(_equals, argument, value),
        variants=lambda base: (with_argument(subject, base, argument.name, value),),
    )


@family("optionals")
def optionals(subject: SurveyedOperator) -> Iterator[Point]:
    """Each argument that has a default, or may be None, given and omitted."""
    for argument in subject.arguments:
        name = argument.name
        if not argument.has_default_value() and not str(argument.type).startswith("Optional["):
            continue
        yield Point(
            name=f"{name} given",
            hit=lambda call, name=name: value_of(call, name) is not None,  # type: ignore[misc]
            variants=partial(_given, subject, argument),
        )
        if argument.has_default_value():
            yield Point(
                name=f"{name} omitted",
                hit=lambda call, name=name: value_of(call, name) is None,  # type: ignore[misc]
                variants=lambda base, name=name: (without_argument(base, name),),  # type: ignore[misc]
            )


def _given(subject: SurveyedOperator, argument: Any, base: Invocation) -> Iterator[Invocation]:
    for value in _values(kind_of(argument), base):
        yield with_argument(subject, base, argument.name, value)


def _values(kind: str, base: Invocation) -> Iterator[Argument]:
    """Plain values of a type."""
    if kind == "Tensor":
        for spec in islice(base.tensors(), 1):
            yield spec
            for shape in ((), *((size,) for size in set(spec.shape))):
                yield replace(reshaped(spec, shape), values=Recipe(("any",), "plain", 0))
    elif kind == "dtype":
        yield from (Enumerated("dtype", name) for name in ("float32", "int64"))
    elif kind.startswith("List["):
        element = kind[len("List[") : -1]
        if element in ("int", "float", "bool"):
            for value in _values(element, base):
                yield (value,)
                yield (value, value)
    else:
        yield from {
            "bool": (True, False),
            "int": (1, 0, 2),
            "float": (0.5, 1.0),
            "number": (1, 0.5),
            "str": ("mean", "none"),
        }.get(kind, ())


@family("words")
def words(subject: SurveyedOperator) -> Iterator[Point]:
    """Each word and each mode that an argument may be."""
    for argument in subject.arguments:
        if kind_of(argument) == "str":
            for word in WORDS:
                yield _settable(subject, argument, word)
        elif kind_of(argument) == "int" and MODES.fullmatch(argument.name):
            for mode in (0, 1, 2):
                yield _settable(subject, argument, mode)


@family("dtype arguments")
def dtype_arguments(subject: SurveyedOperator) -> Iterator[Point]:
    """Each dtype that an argument may name."""
    for argument in subject.arguments:
        if kind_of(argument) == "dtype":
            for dtype in ALL:
                yield _settable(subject, argument, Enumerated("dtype", dtype))


def _ints(value: Argument) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return tuple(v for v in value if isinstance(v, int))
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else ()


@family("dims")
def dims(subject: SurveyedOperator) -> Iterator[Point]:
    """Negative dims and others; several, and none, where there is a list."""
    for argument in subject.arguments:
        name, kind = argument.name, kind_of(argument)
        if kind not in ("int", "List[int]") or not DIMS.fullmatch(name):
            continue
        for word, sign in (("negative", -1), ("positive", 1)):
            yield Point(
                name=f"{name} {word}",
                hit=lambda call, name=name, sign=sign: any(  # type: ignore[misc]
                    (v < 0) == (sign < 0) for v in _ints(value_of(call, name))
                ),
                variants=partial(_turned, subject, name, kind, sign),
            )
        if kind == "List[int]":
            for word, wanted in (("empty", 0), ("several", 2)):
                yield Point(
                    name=f"{name} {word}",
                    hit=lambda call, name=name, wanted=wanted: (  # type: ignore[misc]
                        isinstance(found := value_of(call, name), tuple) and min(len(found), 2) == wanted
                    ),
                    variants=lambda base, name=name, wanted=wanted: (  # type: ignore[misc]
                        with_argument(subject, base, name, tuple(range(wanted))),
                    ),
                )


def _turned(subject: SurveyedOperator, name: str, kind: str, sign: int, base: Invocation) -> Iterator[Invocation]:
    """The call with its dims counted from the other end."""
    value = value_of(base, name)
    ranks = sorted({len(spec.shape) for spec in base.tensors()}, reverse=True)[:1] or [1]
    for rank in (max(ranks[0], 1), ranks[0] + 1):
        turned = tuple(v - rank if v >= 0 > sign else v + rank if v < 0 < sign else v for v in _ints(value))
        if turned and any((v < 0) == (sign < 0) for v in turned):
            yield with_argument(subject, base, name, turned if kind == "List[int]" else turned[0])
    if not _ints(value):
        plain = -1 if sign < 0 else 0
        yield with_argument(subject, base, name, (plain,) if kind == "List[int]" else plain)


@family("signs")
def signs(subject: SurveyedOperator) -> Iterator[Point]:
    """Scalars of each sign; whole numbers that are neither dims nor modes, too."""
    for argument in subject.arguments:
        name, kind = argument.name, kind_of(argument)
        is_plain_int = kind == "int" and not DIMS.fullmatch(name) and not MODES.fullmatch(name)
        if kind != "number" and not is_plain_int:
            continue
        for word, value in (("negative", -1), ("zero", 0), ("positive", 1)):
            yield Point(
                name=f"{name} {word}",
                hit=partial(_has_sign, argument, value),
                variants=lambda base, name=name, value=value: (  # type: ignore[misc]
                    with_argument(subject, base, name, value),
                ),
            )


def _has_sign(argument: Any, sign: int, invocation: Invocation) -> bool:
    found = _effective(argument, invocation)
    return isinstance(found, int | float) and (found > 0) - (found < 0) == sign and found == found


_NAME = re.compile(r"(\w+) (float|int|bool) with (\w+) (?:other )?(float|int|bool)")


def _swapped(invocation: Invocation, dtype: str) -> Invocation:
    """The call with its main dtype, wherever a tensor has it, replaced."""
    main = invocation.dtype
    return invocation.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)


def _is_telling(call: Invocation) -> bool:
    """Whether kernels have something to do: of one element, or none, some look at no dtype."""
    return all(spec.numel > 1 for spec in call.tensors())


def _has_result(base: Acceptance, answer: Acceptance) -> bool:
    return all(0 not in shape for shape in answer.shapes)


def _is_uniform(call: Invocation) -> bool:
    return len({spec.dtype for spec in call.tensors() if not is_index(spec)}) == 1


@family("dtypes")
def dtypes(subject: SurveyedOperator) -> Iterator[Point]:
    """Each dtype that the harness knows."""
    if not subject.tensors:
        return
    # Beside a tensor of another dtype a dtype is promoted, which says nothing of the dtype itself.
    only_mixed = not any(map(_is_uniform, subject.samples))
    only_single = not any(map(_is_telling, subject.samples))
    for dtype in (*ALL, *WIDE_UNSIGNED):
        yield Point(
            name=f"dtype {dtype}",
            hit=lambda call, dtype=dtype: call.dtype == dtype,  # type: ignore[misc]
            variants=lambda base, dtype=dtype: (  # type: ignore[misc]
                (_swapped(base, dtype),)
                if (only_mixed or _is_uniform(base)) and (only_single or _is_telling(base))
                else ()
            ),
            confirm=_has_result,
        )


@family("promotion")
def promotion(subject: SurveyedOperator) -> Iterator[Point]:
    """Tensors of different kinds, tensors of one kind and different width, Scalars of another kind."""
    # The condition of `where` only selects: its dtype is not a matter of promotion.
    first, *others = [name for name in subject.single_tensors if name != "condition"] or [""]
    if not first:
        yield from _in_lists(subject)
        return
    for other in others:
        if not any(is_float(spec.dtype) for s in subject.samples for spec in specs(s, other)):
            # An index, a mask: its dtype is not a matter of promotion.
            continue
        for (left, lefts), (right, rights) in product(REPRESENTATIVES.items(), repeat=2):
            pair = (lefts[0], rights[left == right])
            if pair[0] != pair[1]:
                yield Point(
                    name=f"{first} {left} with {other} {'other ' * (left == right)}{right}",
                    hit=partial(_pairs, first, other, left, right),
                    variants=partial(_paired, first, other, pair),
                    confirm=_has_result,
                )
    scalars = (("float", 0.5), ("int", 2), ("bool", True))
    numbers = [a.name for a in subject.arguments if kind_of(a) == "number"]
    for name, (left, lefts), (right, value) in product(numbers, REPRESENTATIVES.items(), scalars):
        if left != right:
            yield Point(
                name=f"{first} {left} with {name} {right}",
                hit=partial(_with_scalar, first, left, name, right),
                variants=lambda base, dtype=lefts[0], name=name, value=value: (  # type: ignore[misc]
                    with_argument(subject, _swapped(base, dtype), name, value),
                ),
            )


def _pairs(first: str, other: str, left: str, right: str, call: Invocation) -> bool:
    a, b = value_of(call, first), value_of(call, other)
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.dtype == b.dtype:
        return False
    return (kind_of_dtype(a.dtype), kind_of_dtype(b.dtype)) == (left, right)


def _paired(first: str, other: str, pair: tuple[str, str], base: Invocation) -> Iterator[Invocation]:
    if specs(base, first) and specs(base, other) and _is_telling(base):
        swapped = _swapped(base, pair[0])
        swapped = with_specs(swapped, (first,), lambda spec: replace(spec, dtype=pair[0]))
        yield with_specs(swapped, (other,), lambda spec: replace(spec, dtype=pair[1]))


def _with_scalar(first: str, left: str, name: str, right: str, call: Invocation) -> bool:
    tensor, value = value_of(call, first), value_of(call, name)
    return isinstance(tensor, TensorSpec) and kind_of_dtype(tensor.dtype) == left and type(value).__name__ == right


def _in_lists(subject: SurveyedOperator) -> Iterator[Point]:
    for name in subject.tensors:
        yield Point(
            name=f"{name} of several dtypes",
            hit=lambda call, name=name: len({spec.dtype for spec in specs(call, name)}) > 1,  # type: ignore[misc]
            variants=partial(_mixed, subject, name),
        )


def _mixed(subject: SurveyedOperator, name: str, base: Invocation) -> Iterator[Invocation]:
    found = specs(base, name)
    if len(found) > 1:
        wide = "float64" if found[0].dtype != "float64" else "float32"
        yield with_argument(subject, base, name, (replace(found[0], dtype=wide), *found[1:]))


def named(point: str) -> Promotion | None:
    """The promotion that a point of that name is about, if it is about one."""
    found = _NAME.fullmatch(point)
    return Promotion(*found.groups()) if found else None


#: Vector widths around which kernels switch to their tails.
WIDTHS = (4, 8, 16, 32, 64)
#: Terms beyond which a vectorised sum is added up in another order than a plain loop's.
LONG = 128
#: Families of operators that sum along a dim.
_SUMMING = ("reduction", "matmul", "cumulative", "softmax", "norms")


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """The tensor with another shape, row-major."""
    return replace(spec, shape=shape, strides=contiguous_strides(shape), offset=0)


def _of_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """`shape` with leading ones more, or leading dimensions fewer."""
    return (1,) * (rank - len(shape)) + shape[max(len(shape) - rank, 0) :]


@family("ranks")
def ranks(subject: SurveyedOperator) -> Iterator[Point]:
    """Each rank of each tensor, 0 to 5."""
    for name in subject.tensors:
        for rank in range(6):
            yield Point(
                name=f"{name} rank {rank}",
                hit=lambda call, name=name, rank=rank: any(  # type: ignore[misc]
                    len(spec.shape) == rank for spec in specs(call, name)
                ),
                variants=partial(_ranked, subject, name, rank),
            )


def _ranked(subject: SurveyedOperator, name: str, rank: int, base: Invocation) -> Iterator[Invocation]:
    for spec in specs(base, name)[:1]:
        step = rank - len(spec.shape)
        for names in (subject.tensors, (name,)):
            yield with_specs(base, names, partial(_raised, step))


def _raised(step: int, spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, _of_rank(spec.shape, max(len(spec.shape) + step, 0)))


def _resized(spec: TensorSpec, old: int, new: int) -> TensorSpec:
    shape = tuple(new if size == old else size for size in spec.shape)
    return reshaped(spec, shape) if old in spec.shape else spec


def _replaced(old: TensorSpec, shape: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, shape) if spec is old else spec


def with_size(subject: SurveyedOperator, name: str, new: int, base: Invocation) -> Iterator[Invocation]:
    """The call with one size replaced, wherever it occurs, and in one place of one tensor."""
    for spec in specs(base, name)[:1]:
        for old in sorted(set(spec.shape) - {new})[-3:]:
            yield with_specs(base, subject.tensors, partial(_resized, old=old, new=new))
        for dim in range(min(len(spec.shape), 3)):
            shape = (*spec.shape[:dim], new, *spec.shape[dim + 1 :])
            yield with_specs(base, (name,), partial(_replaced, spec, shape))


@family("sizes")
def sizes(subject: SurveyedOperator) -> Iterator[Point]:
    """Dimensions of size 0 and 1 in each tensor, and rows of lengths near each vector width in
    some: kernels loop over as many of the last dimensions at once as lie together in memory."""
    for name in subject.tensors:
        for size in (0, 1):
            yield Point(
                name=f"{name} size {size}",
                hit=lambda call, name=name, size=size: any(size in s.shape for s in specs(call, name)),  # type: ignore[misc]
                variants=partial(with_size, subject, name, size),
            )
    for width in WIDTHS if subject.tensors else ():
        yield Point(
            name=f"row near {width}",
            hit=lambda call, width=width: any(  # type: ignore[misc]
                abs(row - width) <= 1 for spec in call.tensors() for row in _rows(spec.shape)
            ),
            variants=partial(with_size, subject, subject.tensors[0], width),
        )


def _rows(shape: tuple[int, ...]) -> Iterator[int]:
    """Sizes, and products of the last few."""
    yield from shape
    yield from accumulate(reversed(shape), mul)


@family("layouts")
def layouts(subject: SurveyedOperator) -> Iterator[Point]:
    """Tensors that do not lie row-major, that repeat elements, that begin inside their storage."""
    for name in subject.tensors:
        yield Point(
            name=f"{name} non-contiguous",
            hit=lambda call, name=name: any(not s.is_contiguous for s in specs(call, name)),  # type: ignore[misc]
            variants=partial(_laid, name, stepped),
        )
        yield Point(
            name=f"{name} expanded",
            hit=lambda call, name=name: any(map(_repeats, specs(call, name))),  # type: ignore[misc]
            variants=partial(_laid, name, expanded),
        )
        yield Point(
            name=f"{name} offset",
            hit=lambda call, name=name: any(s.offset for s in specs(call, name)),  # type: ignore[misc]
            variants=partial(_laid, name, lambda spec: replace(spec, offset=3)),
        )


def _repeats(spec: TensorSpec) -> bool:
    return any(size > 1 and not stride for size, stride in zip(spec.shape, spec.strides, strict=True))


def _laid(name: str, change: object, base: Invocation) -> Iterator[Invocation]:
    if any(spec.numel > 1 for spec in specs(base, name)):
        yield with_specs(base, (name,), change)  # type: ignore[arg-type]


def stepped(spec: TensorSpec) -> TensorSpec:
    """The tensor with gaps between its elements."""
    return replace(spec, strides=tuple(2 * s for s in contiguous_strides(spec.shape)))


def expanded(spec: TensorSpec) -> TensorSpec:
    """The tensor with one row repeated."""
    widest = max(spec.shape, default=1)
    return replace(spec, strides=tuple(0 if n == widest else s for n, s in zip(spec.shape, spec.strides, strict=True)))


@family("broadcasting")
def broadcasting(subject: SurveyedOperator) -> Iterator[Point]:
    """Each of two tensors smaller than the other."""
    for small, large in permutations(subject.single_tensors, 2):
        yield Point(
            name=f"{small} broadcast to {large}",
            hit=partial(_is_broadcast, small, large),
            variants=partial(_shrunk, small, large),
            confirm=_same_result,
        )


def _is_broadcast(small: str, large: str, call: Invocation) -> bool:
    a, b = value_of(call, small), value_of(call, large)
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.shape == b.shape:
        return False
    padded = _of_rank(a.shape, len(b.shape))
    return len(a.shape) <= len(b.shape) and all(m in (1, n) for m, n in zip(padded, b.shape, strict=True))


def _shrunk(small: str, large: str, base: Invocation) -> Iterator[Invocation]:
    a, b = value_of(base, small), value_of(base, large)
    if isinstance(a, TensorSpec) and isinstance(b, TensorSpec) and a.shape == b.shape:
        for shape in ((1,) * len(a.shape), ()) if min(a.shape, default=1) > 1 else ():
            yield with_specs(base, (small,), partial(reshaped, shape=shape))


def _same_result(base: Acceptance, answer: Acceptance) -> bool:
    return bool(answer.shapes) and answer.shapes == base.shapes and answer.shapes[0] != ()


@family("accumulation")
def accumulation(subject: SurveyedOperator) -> Iterator[Point]:
    """Sums so long that the order of additions shows, which differs between libraries."""
    case = OPERATOR_CASES[subject.overload]
    if (case.judge.accumulates or case.judge.terms) and case.family in _SUMMING and subject.tensors:
        yield Point(
            name=f"{LONG} terms",
            hit=lambda call: any(size >= LONG for spec in call.tensors() for size in spec.shape),
            variants=partial(with_size, subject, subject.tensors[0], LONG + 1),
        )


_SMALLEST_NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_LARGEST = {dtype: max(v for v in special_floats(dtype) if v < np.inf) for dtype in PRECISION}

_Test: TypeAlias = Callable[[str], bool]
_Example: TypeAlias = Callable[[str], float]

#: Class of floating-point numbers → an example in `dtype`.
FLOATS: dict[str, _Example] = {
    "NaN": lambda dtype: float("nan"),
    "+inf": lambda dtype: float("inf"),
    "-inf": lambda dtype: float("-inf"),
    "-0": lambda dtype: -0.0,
    "subnormal": lambda dtype: _SMALLEST_NORMAL[dtype] / 2,
    "largest": lambda dtype: _LARGEST[dtype],
    "half": lambda dtype: 2.5,
    "tie": lambda dtype: 1.0,
}
INTS: dict[str, _Example] = {
    "negative": lambda dtype: -1,
    "zero": lambda dtype: 0,
    "positive": lambda dtype: 1,
    "smallest": lambda dtype: INT_RANGE[dtype][0],
    "largest": lambda dtype: INT_RANGE[dtype][1],
}


@lru_cache(maxsize=4096)
def classes(spec: TensorSpec) -> frozenset[str]:
    """The classes of which the tensor has a number."""
    if not spec.numel:
        return frozenset()
    held = computed(spec)
    if is_float(spec.dtype):
        finite = held[np.isfinite(held)]
        size = np.abs(finite)
        tests = {
            "NaN": np.isnan(held).any(),
            "+inf": (held == np.inf).any(),
            "-inf": (held == -np.inf).any(),
            "-0": (np.signbit(held) & (held == 0)).any(),
            "subnormal": ((size > 0) & (size < _SMALLEST_NORMAL[spec.dtype])).any(),
            "largest": (size == _LARGEST[spec.dtype]).any(),
            "half": ((finite - np.floor(finite)) == 0.5).any(),
            "tie": spec.numel > 1 and len(np.unique(finite)) < len(finite),
        }
    elif spec.dtype in INT_RANGE:
        low, high = INT_RANGE[spec.dtype]
        tests = {
            "negative": (held < 0).any(),
            "zero": (held == 0).any(),
            "positive": (held > 0).any(),
            "smallest": (held == low).any(),
            "largest": (held == high).any(),
        }
    else:
        tests = {"true": held.any(), "false": not held.all()}
    return frozenset(name for name, true in tests.items() if true)


@family("values")
def number_classes(subject: SurveyedOperator) -> Iterator[Point]:
    """Each class of numbers in each tensor that holds such numbers and no indices."""
    for name in subject.tensors:
        seen = [s for sample in subject.samples for s in specs(sample, name) if not is_index(s)]
        if any(is_float(spec.dtype) for spec in seen):
            for word, example in FLOATS.items():
                yield _class(name, word, example, is_float)
        if any(spec.dtype in INT_RANGE for spec in seen):
            for word, example in INTS.items():
                yield _class(name, f"{word} integer", example, INT_RANGE.__contains__)
    for style in STYLES if subject.tensors else ():
        yield Point(
            name=f"style {style}",
            hit=lambda call, style=style: any(  # type: ignore[misc]
                isinstance(spec.values, Recipe) and spec.values.style == style for spec in call.tensors()
            ),
            variants=lambda base: (),
        )


def _class(name: str, word: str, example: _Example, of: _Test) -> Point:
    flag = word.removesuffix(" integer")
    return Point(
        name=f"{name} {word}",
        hit=lambda call: any(of(s.dtype) and flag in classes(s) for s in specs(call, name)),
        variants=lambda base: _holding(name, word, example, of, base),
    )


def _holding(name: str, word: str, example: _Example, of: _Test, base: Invocation) -> Iterator[Invocation]:
    if word == "negative integer" and any(s.dtype.startswith("uint") for s in specs(base, name)):
        return
    if any(of(s.dtype) and s.numel > 1 and not is_index(s) for s in specs(base, name)):
        yield with_specs(base, (name,), lambda s: _filled(s, example(s.dtype)) if of(s.dtype) else s)


@family("indices")
def indices(subject: SurveyedOperator) -> Iterator[Point]:
    """Indices that repeat, count from the end, name the ends, are few, are none, are narrow."""
    for name in subject.tensors:
        if not any(is_index(s) for sample in subject.samples for s in specs(sample, name)):
            continue
        for word, hit, change in (
            ("repeated", _has_repeats, partial(_filled, value=0)),
            ("negative", lambda s: (computed(s) < 0).any(), partial(_filled, value=-1)),
            ("first", lambda s: (computed(s) == 0).any(), partial(_filled, value=0)),
            (
                "last",
                lambda s: (computed(s) == _extent(s) - 1).any(),
                lambda s: _filled(s, _extent(s) - 1),
            ),
            ("fewer than places", lambda s: 0 < s.numel < _extent(s), partial(_with_last, 1)),
            ("none", lambda s: not s.numel, partial(_with_last, 0)),
            ("int32", lambda s: s.dtype == "int32", lambda s: replace(s, dtype="int32")),
        ):
            yield Point(
                name=f"{name} {word}",
                hit=lambda call, name=name, hit=hit: any(  # type: ignore[misc]
                    is_index(s) and hit(s) for s in specs(call, name)
                ),
                variants=partial(_changed, name, change),
            )


def _changed(name: str, change: object, base: Invocation) -> Iterator[Invocation]:
    if any(is_index(s) and s.numel > 1 for s in specs(base, name)):
        yield with_specs(base, (name,), change)  # type: ignore[arg-type]


def _extent(spec: TensorSpec) -> int:
    assert isinstance(spec.values, Recipe)
    return int(spec.values.domain[1])


def _has_repeats(spec: TensorSpec) -> bool:
    return spec.numel > 1 and len(np.unique(computed(spec))) < spec.numel


def _filled(spec: TensorSpec, value: Any) -> TensorSpec:
    return replace(spec, values=Literal((value,) * spec.storage_size))


def _with_last(size: int, spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, (*spec.shape[:-1], size))


def _larger(call: Invocation) -> bool:
    found = window(call)
    return found is not None and any(k > n > 0 for n, k in zip(*found, strict=False))


def _overstrides(call: Invocation) -> bool:
    found = window(call)
    stride = value_of(call, "stride")
    if found is None or stride in (None, ()):
        return False
    reach = found[1]
    return any(s > k for s, k in zip(per_dim(stride, len(reach), 1), reach, strict=False))


@family("windows")
def windows(subject: SurveyedOperator) -> Iterator[Point]:
    """Of convolutions and pooling."""
    names = {argument.name for argument in subject.arguments}
    if "stride" in names and ("kernel_size" in names or {"weight", "padding"} <= names):
        yield Point(name="window larger than input", hit=_larger, variants=partial(_narrowed, subject))
        yield Point(name="stride larger than window", hit=_overstrides, variants=partial(_stretched, subject))
    if "output_size" in names:
        yield Point(name="output does not divide input", hit=_uneven, variants=partial(_unevened, subject))


def _with_last_sizes(sizes: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, (*spec.shape[: -len(sizes)], *sizes))


def _narrowed(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = window(base)
    if found is not None:
        for less in (1, 2):
            sizes = tuple(max(k - less, 1) for k in found[1])
            if sizes != tuple(found[1]):
                yield with_specs(base, subject.tensors[:1], partial(_with_last_sizes, sizes))


def _stretched(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = window(base)
    if found is not None:
        yield with_argument(subject, base, "stride", tuple(k + 1 for k in found[1]))


def _uneven(call: Invocation) -> bool:
    found = targets(call)
    return found is not None and any(m > 0 and n % m for n, m in zip(*found, strict=False))


def _unevened(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = targets(base)
    if found is not None:
        yield with_argument(
            subject, base, "output_size", tuple(next(m for m in range(2, n + 3) if n % m) for n in found[0])
        )
