"""Whether models make a call, as far as its dtypes, its attributes and the relations of its sizes tell.

The calls of real models are recorded (`harness.generate.sources.use`). A drawn call is **used** if one of them has
its pattern, and its values are of everyday size:

- each tensor has the recorded dtype, but for float32, float16 and bfloat16, which models exchange for each other
  (``model.half()``): those that are equal in the recorded call are equal, and those that differ differ;
- sizes of 0 and 1 are where the recorded call has them, and sizes that are equal there are equal;
- every other argument is the same; an integer that is one of the sizes may be that size here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cache

from harness.core.invocation import Argument, Invocation, TensorSpec
from harness.generate.call_traits import has_everyday_tensors
from harness.generate.sources.use import model_calls

_SHORT_FLOATS = frozenset({"float32", "float16", "bfloat16"})


@dataclass
class _Names:
    """Names for the sizes and the short floats of one call, in the order in which they come."""

    sizes: dict[int, int] = field(default_factory=dict)
    floats: dict[str, int] = field(default_factory=dict)

    def abstract_size(self, size: int) -> tuple[str, int]:
        return ("is", size) if size < 2 else ("size", self.sizes.setdefault(size, len(self.sizes)))

    def abstract_dtype(self, dtype: str) -> tuple[str, int] | str:
        return ("float", self.floats.setdefault(dtype, len(self.floats))) if dtype in _SHORT_FLOATS else dtype


def call_pattern(invocation: Invocation) -> Hashable:
    """Return the pattern that a call shares with the calls of models like it; see the head of this file."""
    names = _Names()
    for spec in invocation.tensors():
        for size in spec.shape:
            names.abstract_size(size)

    def pattern(argument: Argument) -> Hashable:
        if isinstance(argument, TensorSpec):
            return names.abstract_dtype(argument.dtype), tuple(map(names.abstract_size, argument.shape))
        if isinstance(argument, tuple):
            return tuple(map(pattern, argument))
        if isinstance(argument, int) and not isinstance(argument, bool) and argument in names.sizes:
            return names.abstract_size(argument)
        # 1, 1.0 and True are three arguments.
        return type(argument).__name__, argument

    return tuple((name, pattern(argument)) for name, argument in invocation.arguments)


def is_used(invocation: Invocation) -> bool:
    """Whether models make such a call.

    Raises:
        harness.record.layout.ResultsError: the file of recorded calls is damaged.
    """
    patterns = _patterns(invocation.overload)
    if not patterns:
        return False

    def plainer(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype="float16") if spec.dtype == "bfloat16" else spec

    return has_everyday_tensors(invocation.map_tensors(plainer)) and call_pattern(invocation) in patterns


@cache
def _patterns(overload: str) -> frozenset[Hashable]:
    return frozenset(call_pattern(use.invocation) for use in model_calls(overload))
