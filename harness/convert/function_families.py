"""Find the conversion function that a converter has for an operator, by the functions that it registers."""

from __future__ import annotations

from harness.convert.conversion_sources import ConversionFunction, conversion_functions
from harness.generate.operator_family import family_name, packet_of


def registered_names(overload: str) -> tuple[str, ...]:
    """Return the names under which a function for an overload may be registered, the most particular first.

    An operator may be registered under the name that it shares with its aliases.
    """
    packet, _, kind = overload.rpartition(".")
    return overload, packet_of(overload), f"{family_name(packet)}.{kind}", family_name(packet)


def own_function(converter: str, overload: str, *, is_complex: bool = False) -> ConversionFunction | None:
    """Return the function with which a converter translates an overload whole; None if no function is known.

    Args:
        converter: Its name.
        overload: Dotted name, as ``aten.add.Tensor``.
        is_complex: Whether the call has complex tensors.
    """
    functions = conversion_functions(converter, is_complex=is_complex)
    return next(filter(None, map(functions.get, registered_names(overload))), None)
