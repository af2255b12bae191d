"""Python's arithmetic on sizes, as calls of a program: what a model does with ``x.shape[0]``.

The calls are named like overloads, ``python.floordiv.int``, and return numbers that other calls take. In a dynamic
export they are operations on symbolic integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Prefix of the names.
SIZES = "python."


@dataclass(frozen=True)
class SizeOperator:
    """One operation.

    Attributes:
        arguments: The names of its arguments, in order.
        compute: Its Python function.
        source: Its Python source, with the arguments in braces.
    """

    arguments: tuple[str, ...]
    compute: Callable[..., Any]
    source: str


SIZE_OPERATORS: dict[str, SizeOperator] = {
    "python.size.int": SizeOperator(("self", "dim"), lambda self, dim: self.shape[dim], "{self}.shape[{dim}]"),
    "python.neg.int": SizeOperator(("a",), operator.neg, "-{a}"),
    "python.abs.int": SizeOperator(("a",), operator.abs, "abs({a})"),
    "python.int.int": SizeOperator(("a",), int, "int({a})"),
    "python.add.int": SizeOperator(("a", "b"), operator.add, "{a} + {b}"),
    "python.sub.int": SizeOperator(("a", "b"), operator.sub, "{a} - {b}"),
    "python.mul.int": SizeOperator(("a", "b"), operator.mul, "{a} * {b}"),
    "python.floordiv.int": SizeOperator(("a", "b"), operator.floordiv, "{a} // {b}"),
    "python.mod.int": SizeOperator(("a", "b"), operator.mod, "{a} % {b}"),
    "python.truediv.int": SizeOperator(("a", "b"), operator.truediv, "{a} / {b}"),
    "python.max.int": SizeOperator(("a", "b"), max, "max({a}, {b})"),
    "python.min.int": SizeOperator(("a", "b"), min, "min({a}, {b})"),
}


def is_size_operator(name: str) -> bool:
    """Whether a call computes a number from sizes."""
    return name.startswith(SIZES)


def format_size_call(name: str, arguments: dict[str, str]) -> str:
    """Return the Python source of a call, given the source of its arguments."""
    return SIZE_OPERATORS[name].source.format(**arguments)
