"""Python's arithmetic on sizes, as calls of a program: what a model does with ``x.shape[0]``.

They are named like overloads, ``python.floordiv.int``, and give numbers, which other calls take. Exporters see them as
operations on symbolic integers where sizes are dynamic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: What the names begin with.
SIZES = "python."


@dataclass(frozen=True)
class SizeOperator:
    """One operation.

    Attributes:
        arguments: Names, in order.
        compute: Makes it.
        written: As a line of Python has it, with the arguments in braces.
    """

    arguments: tuple[str, ...]
    compute: Callable[..., Any]
    written: str


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
    """Whether a call gives a number of sizes."""
    return name.startswith(SIZES)


def written_size(name: str, arguments: dict[str, str]) -> str:
    """A call as Python, given its arguments as Python."""
    return SIZE_OPERATORS[name].written.format(**arguments)
