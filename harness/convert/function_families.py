"""Conversion functions that make one place: those of one operator that share what they do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import combinations

from harness.convert.conversion_calls import work_together
from harness.convert.conversion_sources import ConversionFunction, conversion_functions
from harness.generate.operator_family import family_name, packet_of


def function_of(converter: str, overload: str, *, of_complex: bool = False) -> ConversionFunction | None:
    """What a converter translates an overload with, without taking it apart; None where nothing is known.

    Args:
        of_complex: In a call that has complex tensors.
    """
    functions = conversion_functions(converter, of_complex=of_complex)
    return functions.get(overload) or functions.get(packet_of(overload))


def own_function(converter: str, overload: str, *, of_complex: bool = False) -> ConversionFunction | None:
    """As `function_of`, or under the name that an operator shares with its aliases."""
    packet, _, kind = overload.rpartition(".")
    names = (overload, f"{family_name(packet)}.{kind}")
    found = (function_of(converter, name, of_complex=of_complex) for name in names)
    return next(filter(None, found), None)


def standing_for(converter: str, function: ConversionFunction) -> ConversionFunction:
    """The function that stands for all that make one place with a conversion function.

    What is wrong in ``aten_remainder_Scalar`` is wrong in ``aten_remainder``, which it calls, and what is in
    ``aten_avg_pool2d`` is in ``aten_avg_pool3d``, since both leave it to another. Where they have nothing in
    common, as ``aten_prod`` and ``aten_prod_dim_int``, each is a place of its own.
    """
    return _places(converter).get(function, function)


def function_named(converter: str, name: str) -> ConversionFunction | None:
    """The place of a conversion function by its own name; None where the converter has none."""
    found = _by_name(converter).get(name)
    return found and standing_for(converter, found)


def function_of_family(converter: str, family: str) -> ConversionFunction | None:
    """The first conversion function of a family of operators; None where the converter has none, as where it
    takes the operator apart."""
    functions = _by_family(converter).get(family)
    return standing_for(converter, min(functions)) if functions else None


@cache
def _by_name(converter: str) -> Mapping[str, ConversionFunction]:
    both = (conversion_functions(converter, of_complex=some) for some in (False, True))
    return {function.name: function for function in sorted({one for some in both for one in some.values()})}


@cache
def _by_family(converter: str) -> Mapping[str, set[ConversionFunction]]:
    found: defaultdict[str, set[ConversionFunction]] = defaultdict(set)
    for overload, function in conversion_functions(converter).items():
        found[family_name(packet_of(overload))].add(function)
    return found


@cache
def _places(converter: str) -> Mapping[ConversionFunction, ConversionFunction]:
    """Each conversion function → the first one of its place."""
    places: dict[ConversionFunction, set[ConversionFunction]] = {}
    for functions in _by_family(converter).values():
        for function in functions:
            places.setdefault(function, {function})
        for one, other in combinations(sorted(functions), 2):
            if work_together(converter, one, other) and places[one] is not places[other]:
                places[one] |= places[other]
                for member in places[other]:
                    places[member] = places[one]
    return {function: min(together) for function, together in places.items()}
