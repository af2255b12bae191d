"""Arguments of different kinds of numbers, which PyTorch promotes to a common one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.dtypes import is_float
from harness.core.invocation import TensorSpec
from harness.generate.draw import Draw

#: Kind → dtypes that stand for it next to a tensor of that kind or of another one.
REPRESENTATIVES = {"float": ("float32", "float64"), "int": ("int64", "int32"), "bool": ("bool", "bool")}
_SCALARS: dict[str, tuple[bool | int | float, ...]] = {
    "float": (0.5, 2.0, 1.5, -0.5),
    "int": (2, 1, 3, -1),
    "bool": (True, False),
}


def kind_of_dtype(dtype: str) -> str:
    """Return ``float``, ``int`` or ``bool``."""
    return "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"


@dataclass(frozen=True)
class Promotion:
    """A pair of arguments that PyTorch takes in different kinds, or in different dtypes of one kind.

    Attributes:
        first: A tensor argument.
        left: Its kind: ``float``, ``int`` or ``bool``.
        other: A tensor argument, or a Scalar.
        right: Its kind.
    """

    first: str
    left: str
    other: str
    right: str


def promoted(d: Draw, arguments: Mapping[str, Any], promotions: Sequence[Promotion]) -> dict[str, Any]:
    """Return `arguments`, in about one draw of three with one of them in another kind."""
    found = dict(arguments)
    possible = [p for p in promotions if _applies(p, found)]
    chosen = d.choose(*[None] * (2 * len(possible)), *possible) if possible else None
    if chosen is not None:
        other = found[chosen.other]
        if isinstance(other, TensorSpec):
            first = found[chosen.first].dtype
            dtype = next((r for r in REPRESENTATIVES[chosen.right] if r != first), first)
            found[chosen.other] = replace(other, dtype=dtype)
        else:
            found[chosen.other] = d.choose(*_SCALARS[chosen.right])
    return found


def _applies(promotion: Promotion, arguments: Mapping[str, Any]) -> bool:
    first, other = arguments.get(promotion.first), arguments.get(promotion.other)
    return (
        isinstance(first, TensorSpec)
        and kind_of_dtype(first.dtype) == promotion.left
        and isinstance(other, TensorSpec | int | float)
    )
