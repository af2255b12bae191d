"""Find the conversion function that a converter has for an operator, by the functions that it registers."""

from __future__ import annotations

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
