"""Calls in which a condition of another call is put into a call, so that PyTorch can be asked about both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from harness.analyse.argument_coverage.point import SurveyedOperator, value_of, with_argument, with_specs
from harness.analyse.argument_coverage.shape_points import expanded, stepped, with_size
from harness.analyse.argument_coverage.value_points import FLOATS, INTS
from harness.core import (
    INT_RANGE,
    PRECISION,
    UNSIGNED,
    Argument,
    Invocation,
    Literal,
    Recipe,
    TensorSpec,
    contiguous_strides,
    values as recipes,
)
from harness.generate import FLOAT_CLASSES, INT_CLASSES, Condition, ConditionKind, held_tensors

#: Styles of other values that are tried.
_REDRAWN = ("mixed", "special", "tied", "wide")
#: Elements of a tensor whose values are written down.
_STORAGE = 4096
_SIZES = {"size 0": 0, "size 1": 1, "long": 65}
_LAYOUTS: dict[str, Callable[[TensorSpec], TensorSpec]] = {
    "contiguous": lambda spec: replace(spec, strides=contiguous_strides(spec.shape), offset=0),
    "offset": lambda spec: replace(spec, strides=contiguous_strides(spec.shape), offset=3),
    "non-contiguous": stepped,
    "expanded": expanded,
}
#: Domains in which a tensor may hold any number.
_FREE = ("any", "at_least", "nonzero")
_NOT_FINITE = ("NaN", "+inf", "-inf")
_ALL = {"all true": True, "all false": False}
_STYLES = {"ordinary": "plain", "one special": "one"}


def spliced(subject: SurveyedOperator, base: Invocation, donor: Invocation, wanted: Condition) -> Iterator[Invocation]:
    """Calls like `base` in which `wanted` may be so, as it is of `donor`; none where there is no way."""
    name = wanted.subject
    word = wanted.name.removeprefix(name).strip()
    if wanted.kind is ConditionKind.DTYPE:
        dtype, main = donor.dtype, base.dtype
        yield base.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)
    elif wanted.kind is ConditionKind.PROMOTION and name:
        for spec in held_tensors(value_of(donor, name))[:1]:
            dtype = base.dtype if word == "of the first dtype" else spec.dtype
            yield with_specs(base, (name,), partial(_of_dtype, dtype))
    elif wanted.kind is ConditionKind.LAYOUT:
        yield with_specs(base, (name,), _LAYOUTS[word])
    elif wanted.kind is ConditionKind.SIZE and word in _SIZES and held_tensors(value_of(base, name)):
        yield from with_size(subject, name, _SIZES[word], base)
    elif wanted.is_of_values:
        yield from _with_values(base, name, word)
    elif (name and name not in subject.tensors) or wanted.kind is ConditionKind.PRESENCE:
        yield _given_as(subject, base, donor, name)


def _of_dtype(dtype: str, spec: TensorSpec) -> TensorSpec:
    return replace(spec, dtype=dtype)


def _given_as(subject: SurveyedOperator, base: Invocation, donor: Invocation, name: str) -> Invocation:
    given: dict[str, Argument] = dict(donor.arguments)
    if name in given:
        return with_argument(subject, base, name, given[name])
    return replace(base, arguments=tuple((n, a) for n, a in base.arguments if n != name))


def _with_values(base: Invocation, name: str, word: str) -> Iterator[Invocation]:
    held = held_tensors(value_of(base, name))[:1]
    if held and held[0].numel and held[0].storage_size <= _STORAGE:
        for values in islice(_values(held[0], word), len(_REDRAWN)):
            yield with_specs(base, (name,), lambda spec: replace(spec, values=values))  # noqa: B023 (called at once)


def _values(spec: TensorSpec, word: str) -> Iterator[Recipe | Literal]:
    """Values of which `word` may be so, within the domain that the operator case gives the tensor."""
    recipe = spec.values
    if isinstance(recipe, Literal):
        return
    example = _example(spec.dtype, word)
    domain = recipe.domain[0]
    if domain in _FREE or (domain == "finite" and word not in _NOT_FINITE):
        storage = recipes.compute(recipe, spec.dtype, spec.storage_size).tolist()
        if word == "one true":
            storage = [False] * len(storage)
            example = True
        if example is not None:
            storage[spec.offset] = example
            yield Literal(tuple(storage))
        elif word in (*_ALL, "all equal"):
            yield Literal((_ALL.get(word, storage[spec.offset]),) * len(storage))
    style = _STYLES.get(word)
    if style is not None:
        yield replace(recipe, style=style)
    if example is None or domain not in _FREE:
        yield from (replace(recipe, style=style, seed=recipe.seed + number) for number, style in enumerate(_REDRAWN, 1))


def _example(dtype: str, word: str) -> float | None:
    """A number of that class; None where the dtype has none, and for what is so of several elements."""
    if dtype in PRECISION and word in FLOAT_CLASSES:
        return {"zero": 0.0, "negative": -3.0}[word] if word not in FLOATS else FLOATS[word](dtype)
    if dtype in INT_RANGE and word in INT_CLASSES and not (word[0] == "n" and dtype in UNSIGNED):
        return INTS[word.removesuffix(" integer")](dtype)
    return None
