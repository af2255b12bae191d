"""Find the conversion function that a converter has for an operator, by the functions that it registers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from harness.convert.conversion_sources import ConversionFunction, conversion_functions
from harness.generate.operator_family import family_name, packet_of


def own_function(converter: str, overload: str, *, is_complex: bool = False) -> ConversionFunction | None:
    """Return the function with which a converter translates an overload whole; None if no function is known.

    An operator may be registered under the name that it shares with its aliases.

    Args:
        converter: Its name.
        overload: Dotted name, as ``aten.add.Tensor``.
        is_complex: Whether the call has complex tensors.
    """
    packet, _, kind = overload.rpartition(".")
    functions = conversion_functions(converter, is_complex=is_complex)
    names = (overload, packet_of(overload), f"{family_name(packet)}.{kind}", family_name(packet))
    return next(filter(None, map(functions.get, names)), None)


def function_named(converter: str, name: str) -> ConversionFunction | None:
    """Return a conversion function by its own name; None if the converter lacks it."""
    return _functions_by_name(converter).get(name)


@cache
def _functions_by_name(converter: str) -> Mapping[str, ConversionFunction]:
    both = (conversion_functions(converter, is_complex=some) for some in (False, True))
    return {function.name: function for functions in both for function in functions.values()}
