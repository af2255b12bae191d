"""An ATen operator as PyTorch registers it: overloads, schemas, tags, kernels, and its decomposition.

The decomposition is that of `torch.onnx.export(dynamo=True)`, which calls `run_decompositions` with PyTorch's default
table and `torch._decomp`'s, without the operators that torchlib converts. Here the operator itself stays in the table
even if torchlib converts it, so that its decomposition is known in any case.
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
from harness.pipeline.program import CallStructure, export_request
from harness.pipeline.torch_call import call_invocation


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of an operator's schema.

    Attributes:
        name: Its name.
        type: Its type as the schema prints it: ``Tensor``, ``Tensor[]``, ``Scalar``, ``SymInt[2]``, ``float?``.
        default: Its default as Python code; None if it is required.
        keyword: Whether it is keyword-only.
    """

    name: str
    type: str
    default: str | None = None
    keyword: bool = False

    @property
    def kind(self) -> str:
        """The type without sizes and without the mark of optional ones: ``Tensor``, ``SymInt[]``."""
        plain = self.type.removesuffix("?")
        return plain.partition("[")[0].removesuffix("?") + ("[]" if "[" in plain else "")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The schema of an overload."""

    overload: str
    schema: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, kw_only=True)
class Overload:
    """One overload of an operator.

    Attributes:
        signature: Its schema.
        tags: PyTorch's tags, sorted: ``core``, ``pointwise``.
        functional: Whether its whole effect is what it returns; exporters convert only such overloads.
        composite: Whether its kernel is composed of other operators (CompositeImplicitAutograd), so that PyTorch can
            always decompose it.
    """

    signature: Signature
    tags: tuple[str, ...]
    functional: bool
    composite: bool

    @property
    def name(self) -> str:
        """The overload's name."""
        return self.signature.overload


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator with the overloads that were asked for.

    Attributes:
        name: Its name: ``aten::celu``.
        overloads: Its overloads, functional ones first.
        others: Names of the operator's other overloads.
    """

    name: str
    overloads: tuple[Overload, ...]
    others: tuple[str, ...]

    @property
    def functional(self) -> tuple[Overload, ...]:
        """The overloads that exporters convert."""
        return tuple(o for o in self.overloads if o.functional)


def find_operator(word: str) -> Operator:
    """Return the operator that a user names.

    Args:
        word: ``celu``, ``aten.celu``, ``aten::celu`` (all overloads) or ``aten::celu.default`` (one overload).

    Raises:
        UnknownOperator: PyTorch or its dispatcher has no operator of that name; the message suggests similar names.
    """
    dotted = normalise(word)
    known = [name for name in all_overloads() if is_dispatched(name)]
    matches = [name for name in known if dotted in (name, packet(name))]
    if not matches:
        siblings = [name for name in known if packet(name) == packet(dotted)]
        if siblings:
            raise UnknownOperator(f"{word}: no such overload; there are {', '.join(siblings)}")
        near = near_names(dotted, known)
        hint = f"; near: {', '.join(near)}" if near else ""
        if any(dotted in (name, packet(name)) for name in all_overloads()):
            raise UnknownOperator(
                f"{word}: an instruction of TorchScript for Python values, not an operator of ATen{hint}"
            )
        raise UnknownOperator(f"{word}: PyTorch {torch.__version__} has no ATen operator of that name{hint}")
    chosen = sorted((_describe(name) for name in matches), key=lambda o: (not o.functional, o.name))
    others = tuple(n for n in known if packet(n) == packet(matches[0]) and n not in matches)
    return Operator(name=packet(matches[0]).replace(".", "::", 1), overloads=tuple(chosen), others=others)


def _describe(name: str) -> Overload:
    target = overload(name)
    return Overload(
        signature=signature(name),
        tags=tuple(sorted(str(tag).removeprefix("Tag.") for tag in target.tags)),
        functional=name in functional_overloads(),
        composite=is_composite(target),
    )


def signature(name: str) -> Signature:
    """Return the schema of an overload."""
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
    """Return the names and types of the arguments as the schema prints them.

    PyTorch's argument types say ``number`` for ``Scalar`` and lack the sizes of lists.
    """
    inside = schema.partition("(")[2].rpartition(") -> ")[0]
    # Default values contain commas only within brackets or quotes.
    parts = re.split(r", (?![^\[]*\])(?![^()]*\))", inside)
    words = [part.partition("=")[0].rsplit(" ", 1) for part in parts if part not in ("", "*")]
    return [(pair[1], re.sub(r"\([a-z!|> *-]+\)", "", pair[0])) for pair in words if len(pair) == 2]


@dataclass(frozen=True, kw_only=True)
class OperatorDecomposition:
    """The operators that an overload is decomposed into.

    Attributes:
        source: Where PyTorch has the decomposition: ``table`` (a function in its tables), ``composite`` (the kernel
            itself), ``none``, or ``unknown``.
        operators: Overloads that the calls were decomposed into → whether torchlib converts them, sorted.
        tried: Number of calls that were decomposed.
        problem: Why decomposition failed; "" if it succeeded.
    """

    source: str
    operators: Mapping[str, bool]
    tried: int
    problem: str = ""

    @property
    def reaches(self) -> bool:
        """Whether everything that it is decomposed into is converted."""
        return bool(self.operators) and all(self.operators.values())


def decompose(name: str, invocations: Sequence[Invocation]) -> OperatorDecomposition:
    """Decompose calls of an overload; the result may differ between calls."""
    target = overload(name)
    try:
        function, table = decomposition_functions().get(target), dict(decomposition_table())
    except PrivatePartMissing as missing:
        return OperatorDecomposition(source="unknown", operators={}, tried=0, problem=str(missing))
    if function is not None:
        table[target] = function
    source = "table" if function is not None else "composite" if is_composite(target) else "none"
    if source == "none":
        return OperatorDecomposition(source=source, operators={}, tried=0)
    if not invocations:
        problem = "no case draws a call of it"
        return OperatorDecomposition(source=source, operators={}, tried=0, problem=problem)
    names: set[str] = set()
    problem, tried = "", 0
    for invocation in invocations:
        try:
            names |= _operators(invocation, table)
            tried += 1
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    if name in names:
        # It calls itself for some arguments.
        problem = problem or f"{name} is left in it"
    operators = {operator: operator in registered() for operator in sorted(names)}
    problem = "" if operators else problem
    return OperatorDecomposition(source=source, operators=operators, tried=tried, problem=problem)


def _operators(invocation: Invocation, table: Mapping[Any, Callable[..., Any]]) -> set[str]:
    """Return the overloads in the decomposition of one call."""
    outputs = len(call_invocation(invocation, build_tensors(invocation)))
    structure = CallStructure(invocation, outputs=outputs)
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


#: Checks in captured programs, which the exporter removes.
_ASSERTIONS = {
    "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._assert_tensor_metadata.default",
}
