"""What ONNX nodes of constants give, which the optimiser evaluates one by one, kept for nodes that are alike.

To evaluate a node onnx makes an object of it, which takes many times as long as the arithmetic. Most of these
constants are sizes and axes: the same few numbers again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.convert.torch_private import replaceable

#: More numbers than that are rarely the same twice.
_LARGEST = 64
#: Operator, inputs and attributes → output.
_evaluated: dict[tuple[Any, ...], Any] = {}
#: So many take some ten megabytes.
_MOST_EVALUATED = 20_000
_PLAIN = (int, float, str, bool)


class _Unlike(Exception):
    """Too much decides about a node to tell which others are like it."""


def evaluate(evaluator: Any, domain: str, op: str, version: int, *args: Any, **kwargs: Any) -> Any:
    """What replaces the optimiser's method that evaluates a node."""
    original = replaceable("evaluate").original
    try:
        key = (domain, op, version, *map(_array, args), *_attributes(kwargs))
    except _Unlike:
        return original(evaluator, domain, op, version, *args, **kwargs)
    found = _evaluated.get(key)
    if found is None:
        found = original(evaluator, domain, op, version, *args, **kwargs)
        if not isinstance(found, np.ndarray) or found.size > _LARGEST:
            return found
        if len(_evaluated) >= _MOST_EVALUATED:
            _evaluated.clear()
        _evaluated[key] = found
    # A new one, since whoever gets an array may change it.
    return found.copy()


def _array(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.size > _LARGEST or value.dtype.kind not in "biufc":
        raise _Unlike
    return value.dtype, value.shape, value.tobytes()


def _attributes(values: Mapping[str, Any]) -> list[Any]:
    described: list[Any] = []
    for name, value in sorted(values.items()):
        several = isinstance(value, Sequence) and not isinstance(value, str)
        elements = tuple(value) if several else (value,)
        if not all(isinstance(element, _PLAIN) for element in elements):
            raise _Unlike
        # As text, since 0.0 equals −0.0, 0 and False.
        described.append((name, several, tuple(map(repr, elements))))
    return described
