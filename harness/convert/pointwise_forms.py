"""What pointwise operators return for tensors of any sizes, known from one call for others of its kind.

Such an operator returns a tensor of the shape that its tensors are broadcast to. Where these lie in memory
row by row, so does that. Its dtype hangs on the dtypes, on the numbers, and on which tensors have dimensions.
To find out takes PyTorch up to some milliseconds a call, since many operators do it in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import torch

from harness.core import OpOverload

#: Shape, strides and dtype of a new tensor.
Form: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

#: What changes dtypes alone, and is not said to be pointwise.
_CASTS = frozenset(("aten._to_copy.default", "prims.convert_element_type.default"))
#: The operators of which numbers decide by their types alone, whatever they are.
_BY_TYPE = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "sub", "rsub", "mul", "clamp", "clamp_min", "clamp_max"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
)
#: Call, with descriptions in place of tensors → dtype of what it returns.
_dtypes: dict[tuple[Any, ...], torch.dtype] = {}
#: So many take some ten megabytes.
_MOST_DTYPES = 20_000


@dataclass(frozen=True)
class CallsAlike:
    """A call of a pointwise operator, and all others that differ from it in the sizes of their tensors alone.

    Attributes:
        kind: What they share. Of a size that is whether it is 0, 1 or more.
        shape: That the tensors of this one are broadcast to.
    """

    kind: tuple[Any, ...]
    shape: tuple[int, ...]

    def known(self) -> Form | None:
        """What the call returns, where that is known of another."""
        dtype = _dtypes.get(self.kind)
        return None if dtype is None else (self.shape, _row_by_row(self.shape), dtype)

    def learn(self, form: Form) -> None:
        """Note what the call returns, if that is what a pointwise operator should."""
        if form[:2] == (self.shape, _row_by_row(self.shape)):
            if len(_dtypes) >= _MOST_DTYPES:
                _dtypes.clear()
            _dtypes[self.kind] = form[2]


@cache
def is_pointwise(func: OpOverload) -> bool:
    """Whether each element of what an operator returns is made of those in the same place."""
    return torch.Tag.pointwise in func.tags or str(func) in _CASTS


@cache
def _decides_by_type(func: OpOverload) -> bool:
    return func._schema.name in _BY_TYPE


def calls_alike(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallsAlike | None:
    """What is known of a call of a pointwise operator from others; None where its tensors cannot be
    broadcast, or lie in another order, or where it has more to go by than tensors and numbers."""
    kind: list[Any] = [func, len(args), *kwargs]
    plain = (bool, int, float, complex) if _decides_by_type(func) else ()
    shapes: list[tuple[int, ...]] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            shape = tuple(value.shape)
            if value.stride() != _row_by_row(shape):
                return None
            shapes.append(shape)
            sizes = tuple(min(size, 2) for size in shape)
            kind.append((value.dtype, sizes, value.is_conj(), value.is_neg()))
        elif type(value) in plain:
            kind.append(type(value))
        elif value is None or isinstance(value, int | float | complex | str | torch.dtype):
            # One equals 1.0 and True.
            kind.append((type(value), value))
        else:
            return None
    whole = _broadcast(shapes)
    return None if whole is None else CallsAlike(tuple(kind), whole)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that some are broadcast to; None where that cannot be done."""
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, size in enumerate(shape, len(result) - len(shape)):
            if size != 1:
                if result[place] not in (1, size):
                    return None
                result[place] = size
    return tuple(result)


@lru_cache(10_000)
def _row_by_row(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor that lies in memory row by row."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))
