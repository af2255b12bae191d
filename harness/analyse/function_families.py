"""Conversion functions that make one place: those of one operator, and all that one of them translates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from harness.analyse.operator_family import family_name, packet_of
from harness.convert import ConversionFunction, conversion_functions


def function_of(converter: str, overload: str) -> ConversionFunction | None:
    """What a converter translates an overload with, without taking it apart; None where nothing is known."""
    functions = conversion_functions(converter)
    return functions.get(overload) or functions.get(packet_of(overload))


def function_named(converter: str, name: str) -> ConversionFunction | None:
    """The place of a conversion function by its own name; None where the converter has none."""
    return _places(converter)[1].get(name)


def function_of_family(converter: str, family: str) -> ConversionFunction | None:
    """The function that stands for all that belong together with those of a family of operators; None where
    the converter has none, as where it takes the operator apart.

    What is wrong in ``aten_add`` is as a rule in ``aten_add_scalar``, too; and one function may translate
    several operators.
    """
    return _places(converter)[0].get(family)


@cache
def _places(
    converter: str,
) -> tuple[Mapping[str, ConversionFunction], Mapping[str, ConversionFunction]]:
    """Family, and name of a function, → the first function of its place."""
    above: dict[str | ConversionFunction, str | ConversionFunction] = {}

    def top(one: str | ConversionFunction) -> str | ConversionFunction:
        while above.setdefault(one, one) != one:
            one = above[one]
        return one

    functions = conversion_functions(converter)
    for overload, function in functions.items():
        above[top(family_name(packet_of(overload)))] = top(function)
    together: defaultdict[str | ConversionFunction, list[ConversionFunction]] = defaultdict(list)
    for function in functions.values():
        together[top(function)].append(function)
    families = {family_name(packet_of(overload)) for overload in functions}
    return (
        {family: min(together[top(family)]) for family in families},
        {function.name: min(together[top(function)]) for function in functions.values()},
    )
