"""An ATen operator as PyTorch registers it: overloads, schemas, tags, kinds of kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from harness.analyse.operator_coverage.functional import functional_overloads
from harness.convert import Parameter, Signature
from harness.core import (
    UnknownOperator,
    all_overloads,
    is_composite,
    is_dispatched,
    near_names,
    normalise,
    overload,
    packet,
)


@dataclass(frozen=True, kw_only=True)
class Overload:
    """One overload of an operator.

    Attributes:
        tags: PyTorch's, sorted: ``core``, ``pointwise``.
        functional: Whether its whole effect is what it returns, which is what exporters convert.
        composite: Whether its kernel is made of other operators (CompositeImplicitAutograd), so that
            PyTorch can always take it apart.
    """

    signature: Signature
    tags: tuple[str, ...]
    functional: bool
    composite: bool

    @property
    def name(self) -> str:
        """Dotted."""
        return self.signature.overload


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator with the overloads that were asked for.

    Attributes:
        name: ``aten::celu``.
        overloads: Functional ones first.
        others: Dotted names of the operator's further overloads.
    """

    name: str
    overloads: tuple[Overload, ...]
    others: tuple[str, ...]

    @property
    def functional(self) -> tuple[Overload, ...]:
        """Those that exporters convert."""
        return tuple(o for o in self.overloads if o.functional)


def find_operator(word: str) -> Operator:
    """The operator that a user means.

    Args:
        word: ``celu``, ``aten.celu``, ``aten::celu`` (all overloads) or ``aten::celu.default`` (one).

    Raises:
        UnknownOperator: PyTorch or its dispatcher has none of that name; near ones are named.
    """
    dotted = normalise(word)
    known = [name for name in all_overloads() if is_dispatched(name)]
    found = [name for name in known if dotted in (name, packet(name))]
    if not found:
        siblings = [name for name in known if packet(name) == packet(dotted)]
        if siblings:
            raise UnknownOperator(f"{word}: no such overload; there are {', '.join(siblings)}")
        near = near_names(dotted, known)
        hint = f"; near: {', '.join(near)}" if near else ""
        if any(dotted in (name, packet(name)) for name in all_overloads()):
            raise UnknownOperator(
                f"{word}: an instruction of TorchScript for Python's own values, no operator of ATen{hint}"
            )
        raise UnknownOperator(f"{word}: PyTorch {torch.__version__} has no ATen operator of that name{hint}")
    chosen = sorted((_describe(name) for name in found), key=lambda o: (not o.functional, o.name))
    others = tuple(n for n in known if packet(n) == packet(found[0]) and n not in found)
    return Operator(name=packet(found[0]).replace(".", "::", 1), overloads=tuple(chosen), others=others)


def _describe(name: str) -> Overload:
    found = overload(name)
    return Overload(
        signature=signature(name),
        tags=tuple(sorted(str(tag).removeprefix("Tag.") for tag in found.tags)),
        functional=name in functional_overloads(),
        composite=is_composite(found),
    )


def signature(name: str) -> Signature:
    """The schema of an overload."""
    schema = overload(name)._schema
    types = dict(_declared(str(schema)))
    return Signature(
        overload=name,
        schema=str(schema),
        parameters=tuple(
            Parameter(
                name=argument.name,
                type=types.get(argument.name, str(argument.type)),
                default=repr(argument.default_value) if argument.has_default_value() else None,
                keyword=argument.kwarg_only,
            )
            for argument in schema.arguments
        ),
        outputs=len(schema.returns),
    )


def _declared(schema: str) -> list[tuple[str, str]]:
    """(name, type) of the arguments as the schema prints them: ``Scalar``, where PyTorch's own types say
    ``number``, and sizes of lists, which they lack."""
    inside = schema.partition("(")[2].rpartition(") -> ")[0]
    # No default value of a schema holds a comma outside brackets or quotes.
    parts = re.split(r", (?![^\[]*\])(?![^()]*\))", inside)
    words = [part.partition("=")[0].rsplit(" ", 1) for part in parts if part not in ("", "*")]
    return [(pair[1], re.sub(r"\([a-z!|> *-]+\)", "", pair[0])) for pair in words if len(pair) == 2]
