"""A planted defect: a conversion that is right, and one slip in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, get_type_hints

from onnxscript import opset18

# Its signatures take constants for values of unknown type.
op: Any = opset18

#: What an exporter hands to a conversion: values of the graph, and Python values for attributes.
Value = Any

#: What an exporter is given.
Conversion: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Defect:
    """One slip.

    Attributes:
        name: Name of the function that converts.
        overload: Dotted name.
        converter: Name of the planted converter that makes the slip. The converter with ``right`` in place of
            ``wrong`` in its name has the same conversion without it.
        slip: The mistake in words.
        function: The conversion, whose first argument is whether the slip is made.
    """

    name: str
    overload: str
    converter: str
    slip: str
    function: Conversion

    def conversion(self, slipped: bool) -> Conversion:
        """Return the function that an exporter takes, with the slip or without."""

        def convert(*given: Any, **named: Any) -> Any:
            return self.function(slipped, *given, **named)

        # An exporter reads the arguments and their types from the function.
        signature = inspect.signature(self.function)
        convert.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
        convert.__annotations__ = get_type_hints(self.function)
        return convert


#: All, in the order of their definition.
ALL_DEFECTS: list[Defect] = []


def plant(overload: str, slip: str, *, converter: str = "planted-wrong") -> Callable[[Conversion], Conversion]:
    """Register the decorated function, a conversion whose first argument is whether the slip is made."""
    name = f"aten.{overload}" if "." in overload else f"aten.{overload}.default"
    # A whole name is one of another namespace.
    name = overload if overload.count(".") > 1 else name

    def register(function: Conversion) -> Conversion:
        ALL_DEFECTS.append(Defect(function.__name__, name, converter, slip, function))
        return function

    return register


def number(value: float, like: Value) -> Value:
    """A 0-d constant of the dtype of `like`."""
    return op.CastLike(op.Constant(value_float=float(value)), like)


def ints(*values: int) -> Value:
    """A vector of int64."""
    return op.Constant(value_ints=list(values))


def is_floating(value: Value) -> bool:
    """Whether a value of the graph is of a floating dtype."""
    return bool(value.dtype.is_floating_point())


def positive(dim: int, rank: int) -> int:
    """`dim` counted from the front; a 0-d tensor has one dimension here, as PyTorch has it."""
    return dim % max(rank, 1)
