"""Calls like a drawn one that meet a condition, for PyTorch to say whether it takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from planted.pair_conditions import Condition, Conjunction

from harness.core.dtypes import INT_RANGE, PRECISION
from harness.core.invocation import Argument, Invocation, Literal, TensorSpec, contiguous_strides
from harness.core.tensors import build_tensor


def made_calls(call: Invocation, pair: Conjunction) -> Iterator[Invocation]:
    """Calls with both conditions made, the first one first, and the other way round."""
    for first, second in ((pair.first, pair.second), (pair.second, pair.first)):
        for made in filter(_is_whole, _meet_condition(call, first)):
            yield from filter(_is_whole, _meet_condition(made, second))


def _is_whole(call: Invocation) -> bool:
    """Whether tensors that were filled first and reshaped then have enough values."""
    return all(
        len(spec.values.values) == spec.storage_size for spec in call.tensors() if isinstance(spec.values, Literal)
    )


def _meet_condition(call: Invocation, condition: Condition) -> Iterator[Invocation]:
    given = dict(call.arguments)
    name, word = condition.argument, condition.word
    if word == "omitted":
        yield replace(call, arguments=tuple((n, a) for n, a in call.arguments if n != name))
        return
    if name not in given:
        return
    for value in _values(given[name], word, given):
        yield replace(call, arguments=tuple((n, value if n == name else a) for n, a in call.arguments))


def _values(argument: Argument, word: str, given: dict[str, Argument]) -> Iterator[Argument]:
    # As it is: the condition may hold.
    yield argument
    if word == "None":
        yield None
    elif word in ("is True", "is False"):
        yield word == "is True"
    elif word.startswith("is '"):
        if isinstance(argument, str):
            yield word.removeprefix("is ").strip("'")
    elif word in _NUMBERS and isinstance(argument, int | float):
        yield from _NUMBERS[word]
    elif isinstance(argument, TensorSpec):
        yield from _tensors(argument, word, given)


_NUMBERS: dict[str, tuple[bool | int | float, ...]] = {
    "negative": (-1, -2, -0.5),
    "zero": (0, 0.0),
    "one": (1, 1.0),
    "a fraction": (0.5,),
    "large": (100, 1000.0),
    "not finite": (float("inf"), float("nan")),
    "an int": (2, 1),
    "a float": (2.0, 0.5),
    "a bool": (True,),
}
_FLOATS = {
    "NaN": lambda dtype: float("nan"),
    "+inf": lambda dtype: float("inf"),
    "-inf": lambda dtype: float("-inf"),
    "-0": lambda dtype: -0.0,
    "largest": lambda dtype: torch.finfo(dtype).max,
    "subnormal": lambda dtype: torch.finfo(dtype).tiny / 4,
    "tie": lambda dtype: 2.5,
    "below zero": lambda dtype: -1.5,
}


def _tensors(spec: TensorSpec, word: str, given: dict[str, Argument]) -> Iterator[TensorSpec]:
    kind, _, rest = word.partition(" ")
    if kind == "dtype":
        yield replace(spec, dtype=rest)
    elif kind == "rank":
        rank = int(rest)
        shape = (1,) * (rank - len(spec.shape)) + spec.shape[max(len(spec.shape) - rank, 0) :]
        yield _reshaped(spec, shape)
    elif kind == "promoted":
        for dtype in ("float32", "float64", "int64", "int32", "bool"):
            yield replace(spec, dtype=dtype)
    elif kind == "smaller":
        yield _reshaped(spec, ())
        yield _reshaped(spec, (1,) * len(spec.shape))
    elif word == "not row-major":
        yield replace(spec, strides=tuple(2 * s for s in contiguous_strides(spec.shape)), offset=0)
    elif word == "expanded":
        yield replace(spec, strides=(0,) * len(spec.shape), offset=0)
    elif word in _FLOATS and spec.dtype in PRECISION and spec.numel:
        yield _holding(spec, _FLOATS[word](getattr(torch, spec.dtype)))
    elif spec.dtype in INT_RANGE and spec.numel:
        low, high = INT_RANGE[spec.dtype]
        numbers = {"integer minimum": low, "integer maximum": high, "below zero": -1}
        if word in numbers:
            yield _holding(spec, numbers[word])
    if word in ("all equal", "repeated") and spec.numel:
        first = build_tensor(spec).reshape(-1)[0].item()
        yield replace(spec, values=Literal((first,) * spec.storage_size))


def _reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    return replace(spec, shape=shape, strides=contiguous_strides(shape), offset=0)


def _holding(spec: TensorSpec, number: float) -> TensorSpec:
    """The tensor, row-major, with its first element replaced."""
    values = build_tensor(spec).reshape(-1).tolist()
    values[0] = number
    made = _reshaped(spec, spec.shape)
    return replace(made, values=Literal(tuple(np.asarray(values, dtype=object))))
