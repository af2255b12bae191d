"""Whether PyTorch takes an operator apart into others, and whether those have ONNX conversions.

What counts is what `torch.onnx.export(dynamo=True)` does: it runs `run_decompositions` with PyTorch's default
table and `torch._decomp`'s, less the operators that torchlib converts. Here the operator itself is left in
the table even if torchlib converts it, which tells what it is made of in any case.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from harness.converters import kept_constants
from harness.converters.dynamo import quiet
from harness.invocation import Invocation
from harness.pipeline.call import call_invocation
from harness.pipeline.program import Exportable, Program
from harness.tensors import bind, build_tensors, overload

_EXPORTER = "torch.onnx._internal.exporter"


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """What an overload is made of.

    Attributes:
        source: Where PyTorch has the decomposition: ``table`` (a function in its tables), ``composite`` (the
            kernel itself), ``none``, or ``unknown`` (no call to try it on).
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


def decompose(name: str, invocations: Sequence[Invocation]) -> Decomposition:
    """What the calls of one overload are made of.

    Args:
        name: Dotted name.
        invocations: Calls to try; PyTorch may take each apart in another way.
    """
    target = overload(name)
    table = {**_table(), **({target: f} if (f := _functions().get(target)) is not None else {})}
    source = "table" if target in _functions() else "composite" if _is_composite(target) else "none"
    if source == "none":
        return Decomposition(source=source, operators={}, tried=0)
    if not invocations:
        return Decomposition(source=source, operators={}, tried=0, problem="no case draws a call of it")
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
    return Decomposition(
        source=source, operators=operators, tried=tried, problem="" if operators else problem
    )


@cache
def registered() -> frozenset[str]:
    """Dotted overloads that torchlib converts."""
    return frozenset(str(t) for t in _implemented() if isinstance(t, torch._ops.OpOverload))


def torchlib_functions(name: str) -> tuple[str, ...]:
    """torchlib's conversions of an overload: ``aten_celu (opset 18)``."""
    metas = _registry().get_decomps(overload(name))
    return tuple(
        f"{_function_name(meta.onnx_function)} (opset {meta.opset_introduced}"
        f"{', complex' if meta.is_complex else ''})"
        for meta in metas
    )


def _function_name(function: Any) -> str:
    function = getattr(function, "func", None) or getattr(function, "function", None) or function
    return str(getattr(function, "__name__", None) or getattr(function, "name", function))


@cache
def _registry() -> Any:
    registration = importlib.import_module(f"{_EXPORTER}._registration")
    with quiet():
        return registration.ONNXRegistry.from_torchlib()


@cache
def _implemented() -> frozenset[Any]:
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    return frozenset(decomp.get_onnx_implemented_overloads(_registry()))


@cache
def _functions() -> Mapping[Any, Callable[..., Any]]:
    """Every decomposition function that the exporter may use, as if torchlib converted nothing."""
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    with quiet():
        # Composite operators are in the table too, with their kernels: those are another answer.
        composite = {op for op in torch.export.default_decompositions() if _is_composite(op)}
        whole = decomp.create_onnx_friendly_decomposition_table(set())
    return {op: f for op, f in whole.items() if op not in composite}


@cache
def _table() -> Mapping[Any, Callable[..., Any]]:
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    with quiet():
        return dict(decomp.create_onnx_friendly_decomposition_table(set(_implemented())))


def _is_composite(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name: str = target.name()  # type: ignore[no-untyped-call]
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _operators(invocation: Invocation, table: Mapping[Any, Callable[..., Any]]) -> set[str]:
    """Overloads left of one call once it is taken apart.

    Raises:
        Exception: whatever PyTorch says to the call or to its capture.
    """
    tensors = build_tensors(invocation)
    outputs = len(call_invocation(invocation, tensors))
    member = Exportable(0, bind(invocation), tensors, outputs, tuple(frozenset() for _ in tensors))
    whole = dict(table)
    target = overload(invocation.overload)
    if _is_composite(target) and target not in whole:
        default: Any = torch.export.default_decompositions()
        if target in default:
            whole[target] = default[target]
    with quiet(), torch.no_grad(), kept_constants.kept():
        program = torch.export.export(Program([member]).eval(), tensors, strict=False)
        program = program.run_decompositions(whole)
    return {
        str(node.target)
        for node in program.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    } - _ASSERTIONS


#: What captured programs hold beside what they compute; the exporter removes it.
_ASSERTIONS = {
    "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._assert_tensor_metadata.default",
}
