"""An ATen operator as PyTorch registers it: overloads, schemas, tags, kinds of kernels.

Whether PyTorch takes an operator apart into others, and whether those have ONNX conversions.

What counts is what `torch.onnx.export(dynamo=True)` does: it runs `run_decompositions` with PyTorch's default
table and `torch._decomp`'s, less the operators that torchlib converts. Here the operator itself is left in
the table even if torchlib converts it, which tells what it is made of in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.convert.torch_private import (
    PrivatePartMissing,
    decomposition_functions,
    decomposition_table,
    quiet,
    registered,
)
from harness.core.invocation import Invocation
from harness.core.overloads import UnknownOperator, all_overloads, near_names, normalise, packet
from harness.core.route import Route
from harness.core.tensors import build_tensors, overload
from harness.core.torch_operators import OpOverload, is_composite, is_dispatched
from harness.coverage.target import functional_overloads
from harness.pipeline.program import Exportable, export_request
from harness.pipeline.torch_call import call_invocation


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of an operator's schema.

    Attributes:
        name: The schema's.
        type: As the schema prints it: ``Tensor``, ``Tensor[]``, ``Scalar``, ``SymInt[2]``, ``float?``.
        default: As Python code; None where the argument is required.
        keyword: Whether it is given by keyword alone.
    """

    name: str
    type: str
    default: str | None = None
    keyword: bool = False

    @property
    def kind(self) -> str:
        """The type without what makes it optional and without sizes: ``Tensor``, ``SymInt[]``."""
        plain = self.type.removesuffix("?")
        return plain.partition("[")[0].removesuffix("?") + ("[]" if "[" in plain else "")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """An overload as its schema states it; `overload` is its dotted name."""

    overload: str
    schema: str
    parameters: tuple[Parameter, ...]


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
    )


def _declared(schema: str) -> list[tuple[str, str]]:
    """(name, type) of the arguments as the schema prints them: ``Scalar``, where PyTorch's own types say
    ``number``, and sizes of lists, which they lack."""
    inside = schema.partition("(")[2].rpartition(") -> ")[0]
    # No default value of a schema holds a comma outside brackets or quotes.
    parts = re.split(r", (?![^\[]*\])(?![^()]*\))", inside)
    words = [part.partition("=")[0].rsplit(" ", 1) for part in parts if part not in ("", "*")]
    return [(pair[1], re.sub(r"\([a-z!|> *-]+\)", "", pair[0])) for pair in words if len(pair) == 2]


@dataclass(frozen=True, kw_only=True)
class OperatorDecomposition:
    """What an overload is made of.

    Attributes:
        source: Where PyTorch has the decomposition: ``table`` (a function in its tables), ``composite`` (the
            kernel itself), ``none``, or ``unknown`` (it could not be found out).
        operators: Dotted overloads that the calls came to → whether torchlib converts them, sorted.
        tried: How many calls were decomposed.
        problem: Why it could not be tried; "" if it was.
    """

    source: str
    operators: Mapping[str, bool]
    tried: int
    problem: str = ""

    @property
    def reaches(self) -> bool:
        """Whether everything that it is made of is converted."""
        return bool(self.operators) and all(self.operators.values())


def decompose(name: str, invocations: Sequence[Invocation]) -> OperatorDecomposition:
    """What the calls of one overload are made of; PyTorch may take each apart in another way."""
    target = overload(name)
    try:
        own, table = decomposition_functions().get(target), dict(decomposition_table())
    except PrivatePartMissing as missing:
        return OperatorDecomposition(source="unknown", operators={}, tried=0, problem=str(missing))
    if own is not None:
        table[target] = own
    source = "table" if own is not None else "composite" if is_composite(target) else "none"
    if source == "none":
        return OperatorDecomposition(source=source, operators={}, tried=0)
    if not invocations:
        problem = "no case draws a call of it"
        return OperatorDecomposition(source=source, operators={}, tried=0, problem=problem)
    found: set[str] = set()
    problem, tried = "", 0
    for invocation in invocations:
        try:
            found |= _operators(invocation, table)
            tried += 1
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    if name in found:
        # It calls itself for some arguments.
        problem = problem or f"{name} is left in it"
    operators = {operator: operator in registered() for operator in sorted(found)}
    problem = "" if operators else problem
    return OperatorDecomposition(source=source, operators=operators, tried=tried, problem=problem)


def _operators(invocation: Invocation, table: Mapping[Any, Callable[..., Any]]) -> set[str]:
    """Overloads left of one call once it is decomposed."""
    outputs = len(call_invocation(invocation, build_tensors(invocation)))
    structure = Exportable.of(invocation, outputs=outputs)
    whole = dict(table)
    target = overload(invocation.overload)
    if is_composite(target) and target not in whole:
        default: Any = torch.export.default_decompositions()
        if target in default:
            whole[target] = default[target]
    request = export_request([structure], Route(converter=""))
    with quiet(), torch.no_grad():
        program = torch.export.export(request.program, request.inputs, strict=False)
        program = program.run_decompositions(whole)
    return {
        str(node.target)
        for node in program.graph.nodes
        if node.op == "call_function" and isinstance(node.target, OpOverload)
    } - _ASSERTIONS


#: What captured programs hold beside what they compute; the exporter removes it.
_ASSERTIONS = {
    "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._assert_tensor_metadata.default",
}
