"""Whether PyTorch takes an operator apart into others, and whether those have ONNX conversions.

What counts is what `torch.onnx.export(dynamo=True)` does: it runs `run_decompositions` with PyTorch's default
table and `torch._decomp`'s, less the operators that torchlib converts. Here the operator itself is left in
the table even if torchlib converts it, which tells what it is made of in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.convert import (
    PrivatePartMissing,
    decomposition_functions,
    decomposition_table,
    kept,
    quiet,
    registered,
)
from harness.core import Invocation, OpOverload, build_tensors, is_composite, overload
from harness.execute import Exportable, call_invocation, export_request


@dataclass(frozen=True, kw_only=True)
class OperatorDecomposition:
    """What an overload is made of.

    Attributes:
        source: Where PyTorch has the decomposition: ``table`` (a function in its tables), ``composite`` (the
            kernel itself), ``none``, or ``unknown`` (it could not be found out).
        operators: Dotted overloads that the calls came to → whether torchlib converts them, sorted.
        tried: How many calls were taken apart.
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
    """Overloads left of one call once it is taken apart."""
    outputs = len(call_invocation(invocation, build_tensors(invocation)))
    structure = Exportable.of(invocation, outputs=outputs)
    whole = dict(table)
    target = overload(invocation.overload)
    if is_composite(target) and target not in whole:
        default: Any = torch.export.default_decompositions()
        if target in default:
            whole[target] = default[target]
    request = export_request([structure], opset=None, dynamic=False)
    with quiet(), torch.no_grad(), kept():
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
