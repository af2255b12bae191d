"""Which values an operator allows in a tensor: the generator's promise, kept while values get plainer.

A failure on values that the operator never promised to take would be another failure, and none of anyone's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from harness.analyse.shrink.tensor_edits import PlainNumber
from harness.core import INT_RANGE, PRECISION, Argument, Invocation, Recipe, TensorSpec

#: Argument name → the domains of the recorded invocation's tensors there.
Domains: TypeAlias = Mapping[str, tuple[tuple[str | int | float, ...], ...]]


def domains_of(invocation: Invocation) -> Domains:
    """What the recipes of `invocation` promise; literal values promise nothing."""
    return {name: tuple(dict.fromkeys(_domains(argument))) for name, argument in invocation.arguments}


def _domains(argument: Argument) -> list[tuple[str | int | float, ...]]:
    if isinstance(argument, tuple):
        return [domain for element in argument for domain in _domains(element)]
    if isinstance(argument, TensorSpec) and isinstance(argument.values, Recipe):
        return [argument.values.domain]
    return []


def allowed(domains: Sequence[tuple[str | int | float, ...]], dtype: str, numbers: Sequence[PlainNumber]) -> bool:
    """Whether these values may stand in a tensor of `domains` and `dtype`."""
    if dtype in INT_RANGE:
        low, high = INT_RANGE[dtype]
        if not all(low <= n <= high for n in _real(numbers)):
            return False
    if dtype in _LARGEST and any(_LARGEST[dtype] < abs(n) < math.inf for n in numbers):
        return False
    return all(_RULES[str(name)](dtype, numbers, *rest) for name, *rest in domains if name in _RULES)


#: Finite numbers beyond these would be infinite in the tensor.
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028235e38}


def keeps_values(domains: Sequence[tuple[str | int | float, ...]]) -> bool:
    """Whether the values hang together, so that none may change alone."""
    return any(name in _TOGETHER for name, *_ in domains)


def _real(numbers: Sequence[Any]) -> list[float]:
    return [n for n in numbers if not isinstance(n, complex)]


def _distinct(dtype: str, numbers: Sequence[Any], *_: Any) -> bool:
    return len(set(numbers)) == len(numbers)


def _like(dtype: str, numbers: Sequence[Any], mean: float, deviation: float, *rest: float) -> bool:
    """What a model has there: of its range, zero, or -inf where it has these."""
    low, high, _, *minus_infinite = rest
    return all(low <= n <= high or n == 0 or (minus_infinite and n == -math.inf) for n in _real(numbers))


_RULES: Mapping[str, Callable[..., bool]] = {
    "finite": lambda dtype, numbers: all(map(math.isfinite, _real(numbers))),
    "at_least": lambda dtype, numbers, low: not any(n < low for n in _real(numbers)),
    "nonzero": lambda dtype, numbers: dtype in PRECISION or all(numbers),
    "range": lambda dtype, numbers, low, high: all(low <= n <= high for n in _real(numbers)),
    "signs": lambda dtype, numbers: all(abs(n) == 1 for n in numbers),
    "unique": _distinct,
    "distinct": _distinct,
    "like": _like,
}
#: Runs that ascend, matrices that are well conditioned: a part of them is as good, another number is not.
_TOGETHER = frozenset(
    (
        *("ascending", "descending", "countdown", "sorted", "steps", "offsets"),
        *("packed", "unique", "dominant", "triangular"),
    )
)
