"""Conditions of the tensors of a call: dtypes, ranks, sizes, layouts, and shapes beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.core import PARTS, WIDE_UNSIGNED, Argument, Recipe, TensorSpec, is_float
from harness.generate.pairs.condition import Condition, ConditionKind

#: Domains whose values name places along a dimension; their first parameter is its size.
INDEX_DOMAINS = ("index", "signed_index", "unique", "index_or")
#: Lengths from here on run through more than one vector of a kernel.
_LONG = 64
#: Ranks from here on count as one.
_RANKS = 4
#: Of a list of tensors so many lengths are told apart.
_SEVERAL = 3


def is_index(spec: TensorSpec) -> bool:
    """Whether the tensor names places."""
    return isinstance(spec.values, Recipe) and spec.values.domain[0] in INDEX_DOMAINS


def held_tensors(argument: Argument) -> tuple[TensorSpec, ...]:
    """The tensors of an argument, in a list or alone."""
    elements = argument if isinstance(argument, tuple) else (argument,)
    return tuple(element for element in elements if isinstance(element, TensorSpec))


def tensor_conditions(arguments: Sequence[tuple[str, Argument]]) -> Iterator[Condition]:
    """Of all tensors of a call; of a list, of its first tensor and of how the others differ."""
    first: TensorSpec | None = None
    for name, argument in arguments:
        held = held_tensors(argument)
        if isinstance(argument, tuple) and held:
            yield from _of_list(name, argument, held)
        for spec in held[:1]:
            yield from _of_place(name, spec)
            if first is None:
                first = spec
                yield dtype_condition(spec.dtype)
                rank = len(spec.shape)
                shown = str(rank) if rank < _RANKS else f"{_RANKS}+"
                yield Condition(ConditionKind.RANK, name, f"{name} rank", f"{name} rank {shown}")
                yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} {_size_class(spec)}")
            else:
                yield from _of_later(name, spec, first)


def _of_list(name: str, argument: tuple[Argument, ...], held: Sequence[TensorSpec]) -> Iterator[Condition]:
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


def _of_place(name: str, spec: TensorSpec) -> Iterator[Condition]:
    """How it lies in memory."""
    repeats = any(n > 1 and not step for n, step in zip(spec.shape, spec.strides, strict=True))
    if repeats:
        word = "expanded"
    elif not spec.is_contiguous:
        word = "non-contiguous"
    else:
        word = "offset" if spec.offset else "contiguous"
    yield Condition(ConditionKind.LAYOUT, name, f"{name} layout", f"{name} {word}")


def _of_later(name: str, spec: TensorSpec, first: TensorSpec) -> Iterator[Condition]:
    """Its dtype and shape as far as they differ from those of the first tensor."""
    if is_index(spec):
        word = spec.dtype
    elif spec.dtype == first.dtype:
        word = "of the first dtype"
    else:
        kind = _kind_of(spec.dtype)
        word = f"other {kind}" if kind == _kind_of(first.dtype) else kind
    yield Condition(ConditionKind.PROMOTION, name, f"{name} dtype", f"{name} {word}")
    yield Condition(ConditionKind.SHAPES, name, f"{name} shape", f"{name} {_beside(spec.shape, first.shape)}")
    if not spec.numel or not first.numel:
        word = "empty" if not spec.numel else "not empty beside an empty one"
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} {word}")
    elif spec.numel == 1:
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} one element")
    else:
        yield Condition(ConditionKind.SIZE, name, f"{name} size", f"{name} several elements")


def _beside(shape: tuple[int, ...], first: tuple[int, ...]) -> str:
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
        return "size 0"
    if spec.numel == 1:
        return "one element"
    if max(spec.shape) >= _LONG:
        return "long"
    return "size 1" if 1 in spec.shape else "ordinary size"


def dtype_condition(dtype: str) -> Condition:
    """Of the main dtype of a call; the wide unsigned integers, of which few are drawn, are one, as are the
    complex numbers."""
    word = "wide unsigned" if dtype in WIDE_UNSIGNED else "complex" if dtype in PARTS else dtype
    return Condition(ConditionKind.DTYPE, "", "main dtype", f"dtype {word}")


def _kind_of(dtype: str) -> str:
    if dtype in PARTS:
        return "complex"
    return "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"
