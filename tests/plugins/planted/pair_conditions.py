"""Conditions that a call may meet; a planted defect needs two of them at once.

A condition is a word about one argument. Structural ones are known when a call is exported, the others only
when it is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from harness.core.dtypes import INT_RANGE, PARTS, PRECISION, Array
from harness.core.invocation import Invocation, TensorSpec
from harness.core.tensors import TENSOR_PLACE, BoundCall, build_tensor


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor as a condition sees it."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    read: Callable[[], Array]

    @cached_property
    def numbers(self) -> Array:
        """Its elements: floats in float64, so that all dtypes are looked at alike."""
        found = self.read()
        return found.astype(np.float64) if self.dtype in PRECISION else found

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_row_major(self) -> bool:
        """Whether it lies in memory as it is read."""
        return TensorSpec(self.shape, self.dtype, self.strides, 0, None).is_contiguous  # type: ignore[arg-type]


#: Argument → what it is given; tensors are `Held`, those of a list too, dtypes and the like are words.
Seen = Mapping[str, Any]


def seen(call: Invocation) -> Seen:
    """A call that is described."""
    return {name: _seen_argument(argument) for name, argument in call.arguments}


def seen_call(call: BoundCall, tensors: Sequence[Held]) -> Seen:
    """A call that is made, with these tensors in its open places."""
    supply = iter(tensors)
    names = [argument.name for argument in call.target._schema.arguments]  # type: ignore[attr-defined]
    given = (*zip(names, call.positional, strict=False), *call.keywords)
    return {name: _filled(value, supply) for name, value in given}


def weight_tensor(tensor: torch.Tensor) -> Held:
    """A tensor; its elements are not looked at before it is asked for them."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Held(tuple(tensor.shape), dtype, tuple(tensor.stride()), lambda: _numbers_of(tensor))


@dataclass(frozen=True)
class Condition:
    """A condition that a call may meet.

    Attributes:
        argument: Of its schema.
        word: One of those that `_rule` knows.
    """

    argument: str
    word: str

    @property
    def is_structural(self) -> bool:
        """Whether an export can know it."""
        return self.word not in _ELEMENTS and self.word not in _WHOLE

    @property
    def is_of_elements(self) -> bool:
        """Whether one element does it."""
        return self.word in _ELEMENTS

    def holds(self, call: Seen) -> bool:
        """Whether a call does it."""
        given = call.get(self.argument, _OMITTED)
        if self.word in _GIVEN:
            return _GIVEN[self.word](given)
        if self.word.startswith("is "):
            return not isinstance(given, Held | list) and repr(given) == self.word.removeprefix("is ")
        if self.word in _NUMBERS:
            return isinstance(given, int | float) and _NUMBERS[self.word](given)
        if self.word in _LISTS:
            return isinstance(given, list) and _LISTS[self.word](given)
        return any(self._of_tensor(held, call) for held in _held(given))

    def elements(self, call: Seen) -> Array | None:
        """Return a mask of the elements that meet it; None if the argument is not a tensor."""
        given = call.get(self.argument, _OMITTED)
        return _ELEMENTS[self.word](given) if isinstance(given, Held) else None

    def _of_tensor(self, held: Held, call: Seen) -> bool:
        kind, _, rest = self.word.partition(" ")
        if kind == "dtype":
            return held.dtype == rest
        if kind == "rank":
            return min(len(held.shape), 4) == int(rest)
        if kind in ("smaller", "promoted"):
            other = call.get(rest.removeprefix("than ").removeprefix("with "))
            if not isinstance(other, Held):
                return False
            return held.dtype != other.dtype if kind == "promoted" else held.numel < other.numel
        if self.word in _SHAPES:
            return _SHAPES[self.word](held)
        if self.word in _ELEMENTS:
            return bool(held.numel) and bool(_ELEMENTS[self.word](held).any())
        return held.numel > 1 and _WHOLE[self.word](held)


@dataclass(frozen=True)
class Conjunction:
    """Two conditions of one call.

    Attributes:
        facing: Whether one element of the result must come from elements that do them both.
    """

    overload: str
    first: Condition
    second: Condition
    facing: bool = False

    @property
    def kind(self) -> str:
        """``structure × structure``, ``structure × value`` or ``value × value``."""
        words = sorted("structure" if c.is_structural else "value" for c in (self.first, self.second))
        return " × ".join(words)

    @property
    def is_structural(self) -> bool:
        """Whether an export can know it."""
        return self.first.is_structural and self.second.is_structural

    def holds(self, call: Seen) -> bool:
        """Whether a call does both."""
        if not (self.first.holds(call) and self.second.holds(call)):
            return False
        if not self.facing:
            return True
        one, other = self.first.elements(call), self.second.elements(call)
        if one is None or other is None:
            return False
        try:
            return bool(np.logical_and(one, other).any())
        except ValueError:
            return False

    def __str__(self) -> str:
        """Describe it for a person."""
        joint = "facing" if self.facing else "and"
        return (
            f"{self.overload}: {self.first.argument} {self.first.word} {joint} "
            f"{self.second.argument} {self.second.word}"
        )


def conditions_of(calls: Sequence[Seen], arguments: Sequence[Any]) -> list[Condition]:
    """Conditions that may be asked of an operator: of its schema's arguments, given some of its calls."""
    found: dict[Condition, None] = {}

    def add(name: str, words: Iterable[str]) -> None:
        found.update(dict.fromkeys(Condition(name, word) for word in words))

    singles = [a.name for a in arguments if any(isinstance(c.get(a.name), Held) for c in calls)]
    for argument in arguments:
        name = argument.name
        values = [call[name] for call in calls if name in call]
        tensors = [held for value in values for held in _held(value)]
        if argument.has_default_value() or str(argument.type).startswith("Optional"):
            add(name, ("omitted", "given"))
            if any(value is None for value in values):
                add(name, ("None",))
        if tensors:
            add(name, _of_tensors(tensors))
            others = [other for other in singles if other != name]
            if name in singles:
                add(name, (f"smaller than {other}" for other in others))
                add(name, (f"promoted with {other}" for other in others if _promotes(name, other, calls)))
        else:
            add(name, _of_values(argument, values))
    return list(found)


def _of_tensors(tensors: Sequence[Held]) -> Iterator[str]:
    dtypes = {held.dtype for held in tensors}
    if len(dtypes) > 1:
        yield from (f"dtype {dtype}" for dtype in sorted(dtypes))
    ranks = {min(len(held.shape), 4) for held in tensors}
    if len(ranks) > 1:
        yield from (f"rank {rank}" for rank in sorted(ranks))
    yield from _SHAPES
    if dtypes & PRECISION.keys():
        yield from ("NaN", "+inf", "-inf", "-0", "largest", "subnormal", "tie", "below zero", "all equal")
    signed = dtypes & (INT_RANGE.keys() - {"uint8", "uint16", "uint32", "uint64"})
    if signed:
        yield from ("integer minimum", "below zero")
    if dtypes & INT_RANGE.keys():
        yield from ("integer maximum", "repeated", "all equal")
    if "bool" in dtypes:
        yield from ("all equal", "true", "false")


def _of_values(argument: Any, values: Sequence[Any]) -> Iterator[str]:
    kind = str(argument.type)
    plain = [v for v in values if v is not None]
    if any(isinstance(v, list) for v in plain):
        yield from _LISTS
    elif any(isinstance(v, str | bool) for v in plain) and "number" not in kind:
        yield from (f"is {value!r}" for value in sorted({v for v in plain if isinstance(v, str | bool)}))
    elif reals := [v for v in plain if isinstance(v, int | float)]:
        yield from (word for word, test in _NUMBERS.items() if any(map(test, reals)))


def _promotes(name: str, other: str, calls: Sequence[Seen]) -> bool:
    pairs = [(c.get(name), c.get(other)) for c in calls]
    both = [(a, b) for a, b in pairs if isinstance(a, Held) and isinstance(b, Held)]
    # Of an index and what it is an index of the dtypes always differ.
    return any(a.dtype != b.dtype for a, b in both) and any(a.dtype == b.dtype for a, b in both)


_OMITTED = object()

_GIVEN: dict[str, Callable[[Any], bool]] = {
    "omitted": lambda given: given is _OMITTED,
    "given": lambda given: given is not _OMITTED and given is not None,
    "None": lambda given: given is None,
}
_NUMBERS: dict[str, Callable[[Any], bool]] = {
    "negative": lambda n: n < 0,
    "zero": lambda n: n == 0 and not isinstance(n, bool),
    "one": lambda n: n == 1 and not isinstance(n, bool),
    "a fraction": lambda n: n % 1 not in (0,) and math.isfinite(n),
    "large": lambda n: abs(n) >= 100,
    "not finite": lambda n: not math.isfinite(n),
    "an int": lambda n: type(n) is int,
    "a float": lambda n: type(n) is float,
    "a bool": lambda n: type(n) is bool,
}
_LISTS: dict[str, Callable[[list[Any]], bool]] = {
    "of none": lambda given: not given,
    "of one": lambda given: len(given) == 1,
    "of several": lambda given: len(given) > 1,
    "with a negative": lambda given: any(isinstance(v, int | float) and v < 0 for v in given),
    "of different ones": lambda given: len(set(map(repr, given))) > 1,
}
_SHAPES: dict[str, Callable[[Held], bool]] = {
    "of no elements": lambda held: not held.numel,
    "of one element": lambda held: held.numel == 1,
    "with a size of one": lambda held: 1 in held.shape and held.numel != 1,
    "of many elements": lambda held: held.numel >= 64,
    "not row-major": lambda held: not held.is_row_major,
    "expanded": lambda held: any(n > 1 and not s for n, s in zip(held.shape, held.strides, strict=True)),
}
_LARGEST = {name: float(torch.finfo(getattr(torch, name)).max) for name in PRECISION}
_TINY = {name: float(torch.finfo(getattr(torch, name)).tiny) for name in PRECISION}


def _of(dtypes: Collection[str], test: Callable[[Held, Array], Array]) -> Callable[[Held], Array]:
    return lambda held: test(held, held.numbers) if held.dtype in dtypes else np.zeros(held.shape, dtype=bool)


_ELEMENTS: dict[str, Callable[[Held], Array]] = {
    "NaN": _of(PRECISION, lambda held, x: np.isnan(x)),
    "+inf": _of(PRECISION, lambda held, x: x == np.inf),
    "-inf": _of(PRECISION, lambda held, x: x == -np.inf),
    "-0": _of(PRECISION, lambda held, x: np.signbit(x) & (x == 0)),
    "largest": _of(PRECISION, lambda held, x: np.abs(x) == _LARGEST[held.dtype]),
    "subnormal": _of(PRECISION, lambda held, x: (x != 0) & (np.abs(x) < _TINY[held.dtype])),
    "tie": _of(PRECISION, lambda held, x: np.modf(np.abs(x))[0] == 0.5),
    "integer minimum": _of(INT_RANGE, lambda held, x: x == INT_RANGE[held.dtype][0]),
    "integer maximum": _of(INT_RANGE, lambda held, x: x == INT_RANGE[held.dtype][1]),
    "below zero": _of({*PRECISION, *INT_RANGE}, lambda held, x: x < 0),
    "true": _of({"bool"}, lambda held, x: x),
    "false": _of({"bool"}, lambda held, x: ~x),
}
_WHOLE: dict[str, Callable[[Held], bool]] = {
    "all equal": lambda held: held.dtype not in PARTS and bool((held.numbers == held.numbers.flat[0]).all()),
    "repeated": lambda held: held.dtype in INT_RANGE and len(np.unique(held.numbers)) < held.numel,
}


def _held(given: Any) -> list[Held]:
    if isinstance(given, list):
        return [element for element in given if isinstance(element, Held)]
    return [given] if isinstance(given, Held) else []


def _seen_argument(argument: Any) -> Any:
    if isinstance(argument, TensorSpec):
        return Held(argument.shape, argument.dtype, argument.strides, lambda: _numbers_of(build_tensor(argument)))
    if isinstance(argument, tuple):
        return [_seen_argument(element) for element in argument]
    return getattr(argument, "name", argument)


def _filled(value: Any, supply: Iterator[Held]) -> Any:
    if value is TENSOR_PLACE:
        return next(supply)
    if isinstance(value, list):
        return [_filled(element, supply) for element in value]
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value).removeprefix("torch.")
    return str(value) if isinstance(value, torch.device) else value


def _numbers_of(tensor: torch.Tensor) -> Array:
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.double()
    return tensor.detach().numpy()
